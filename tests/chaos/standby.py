"""A primary and its standby: two servers under streaming replication."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroad.postgres.postmaster import read_postmaster
from postroad.testing import TestServer, wait_until
from tests.fixtures.postgres import new_server_folder, running_server

STANDBY_NAME = "standby"


@dataclass
class Pair:
    """The two of them; `dsn` leads to whichever takes writes."""

    primary: TestServer
    standby: TestServer

    def dsn(self, database: str) -> str:
        one, other = (
            conninfo_to_dict(server.dsn(database)) for server in (self.primary, self.standby)
        )
        return make_conninfo(
            "",
            host=f"{one['host']},{other['host']}",
            port=f"{one['port']},{other['port']}",
            user=one["user"],
            dbname=database,
            target_session_attrs="read-write",
        )

    def lose_primary(self) -> None:
        """Let the primary die at once, for good."""
        postmaster = read_postmaster(self.primary.embedded.cluster.data)
        assert postmaster is not None
        os.kill(postmaster.pid, signal.SIGQUIT)
        wait_until(
            lambda: read_postmaster(self.primary.embedded.cluster.data) is None,
            what="the primary is down",
        )

    def promote(self) -> None:
        with psycopg.connect(self.standby.dsn("postgres"), autocommit=True) as connection:
            connection.execute("select pg_promote()")

    def swap(self) -> None:
        """Let the standby take over from a primary that stops, which becomes its standby."""
        former, successor = self.primary, self.standby
        with psycopg.connect(former.dsn("postgres"), autocommit=True) as connection:
            connection.execute("alter system reset synchronous_standby_names")
            connection.execute("select pg_reload_conf()")
        data = former.embedded.cluster.data
        (data / "standby.signal").touch()
        source = make_conninfo("", **conninfo_to_dict(successor.dsn("postgres")))
        with (data / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"primary_conninfo = '{source.replace(chr(39), chr(39) * 2)}'\n")
        former.stop()
        self.promote()
        former.start()
        self.primary, self.standby = successor, former
        self.wait_until_caught_up()

    def wait_until_caught_up(self) -> None:
        """Wait until the standby has everything that the primary has written."""
        with (
            psycopg.connect(self.primary.dsn("postgres"), autocommit=True) as primary,
            psycopg.connect(self.standby.dsn("postgres"), autocommit=True) as standby,
        ):
            row = primary.execute("select pg_current_wal_flush_lsn()::text").fetchone()
            wait_until(
                lambda: (
                    standby.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone()
                    == (True,)
                ),
                what="the standby has caught up",
            )


@contextmanager
def synchronous_pair(bin_folder: Path | None) -> Iterator[Pair]:
    """Give a primary whose commits wait for its standby."""
    with running_server(bin_folder) as primary:
        cluster = primary.embedded.cluster
        with (cluster.data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write("local replication postroad peer map=postroad\n")
        with psycopg.connect(primary.dsn("postgres"), autocommit=True) as connection:
            connection.execute("select pg_reload_conf()")
        standby = TestServer(new_server_folder(bin_folder), bin_folder)
        copy = standby.embedded.cluster
        copy.make_folders()
        source = conninfo_to_dict(primary.dsn("postgres"))
        made = copy.user.run(
            [
                cluster.binaries.program("pg_basebackup"),
                f"--pgdata={copy.data}",
                f"--dbname={make_conninfo('', **source, application_name=STANDBY_NAME)}",
                "--checkpoint=fast",
                "--write-recovery-conf",
                "--wal-method=stream",
                "--no-sync",
            ],
            cwd=copy.home,
        )
        assert made.returncode == 0, made.stderr
        standby.start()
        try:
            with psycopg.connect(primary.dsn("postgres"), autocommit=True) as connection:
                connection.execute(f"alter system set synchronous_standby_names = {STANDBY_NAME}")
                connection.execute("select pg_reload_conf()")
                wait_until(
                    lambda: (
                        connection.execute(
                            "select from pg_stat_replication where sync_state = 'sync'"
                        ).rowcount
                    ),
                    what="the standby is synchronous",
                )
            yield Pair(primary, standby)
        finally:
            standby.stop()
