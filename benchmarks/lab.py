"""Where a scenario is measured: a fresh database with the bus, maintenance beside it, pgbench."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from benchmarks.maintenance import Maintainer
from benchmarks.pgbench import Pgbench
from postroad.bus.schema import BUS
from postroad.postgres import EmbeddedServer, install

__all__ = ["CONFIGURATION", "Lab", "open_lab", "open_server"]

CONFIGURATION = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "autovacuum": "on",
    "max_connections": "60",
}

NOTICE_SECONDS = 2


@dataclass(slots=True)
class Lab:
    """One scenario's database and tools."""

    dsn: str
    connection: psycopg.Connection[Any]
    pgbench: Pgbench
    maintainer: Maintainer
    scale: float
    root: Path
    report: Callable[[str], None]
    _names: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def scaled(self, amount: float, least: float = 1) -> int:
        """Shrink an amount to the scale of this run."""
        return round(max(least, amount * self.scale))

    def execute(self, statement: str) -> None:
        """Run a statement in a transaction of its own."""
        self.connection.execute(statement.encode())

    def number(self, query: str) -> float:
        """Ask for one number."""
        row = self.connection.execute(query.encode()).fetchone()
        return float(row[0]) if row else 0.0

    def session_milliseconds(self) -> float:
        """Return the processor time of the session of `connection`."""
        stat = Path(f"/proc/{self.connection.info.backend_pid}/stat").read_text("ascii")
        figures = stat.rpartition(")")[2].split()
        return (int(figures[11]) + int(figures[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def server_milliseconds(self) -> float:
        """Return the processor time of all sessions that have ended, which the server adds up."""
        session = Path(f"/proc/{self.connection.info.backend_pid}/stat").read_text("ascii")
        server = session.rpartition(")")[2].split()[1]
        # A session is added up once the server has noticed its end, some milliseconds later.
        deadline = time.monotonic() + NOTICE_SECONDS
        children = Path(f"/proc/{server}/task/{server}/children")
        while self._ending(children.read_text("ascii").split()) and time.monotonic() < deadline:
            time.sleep(0.01)
        figures = Path(f"/proc/{server}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(figures[13]) + int(figures[14])) * 1000 / os.sysconf("SC_CLK_TCK")

    def _ending(self, children: list[str]) -> list[int]:
        listed = self.connection.execute(
            "select pid from pg_stat_activity where application_name <> 'pgbench'"
        ).fetchall()
        ended = {int(pid) for pid in children} - {pid for (pid,) in listed}
        # The process that writes the log is never listed.
        return [pid for pid in ended if b"logger" not in _title(pid)]

    def checkpoint(self) -> None:
        """Give each measured piece the same start: nothing dirty left over from the one before."""
        self.execute("checkpoint")

    def new_queue(self, payload: str = "text") -> str:
        """Create a queue and return its name."""
        name = f"q{next(self._names)}"
        self.execute(f"select mbus.create_queue('{name}', payload => '{payload}')")
        return name

    def drop_queue(self, name: str) -> None:
        """Drop a queue with what is left in it."""
        self.execute(f"select mbus.drop_queue('{name}')")


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


@contextmanager
def open_server(**more: str) -> Iterator[EmbeddedServer]:
    """Run a durable server of the benchmark's own in a temporary folder, configured by `more`."""
    folder = Path(tempfile.mkdtemp(prefix="postroad-bench-"))
    # As root the server runs as a user of its own, which has to get through.
    folder.chmod(0o755)
    server = EmbeddedServer(folder, configuration={**CONFIGURATION, **more})
    try:
        with server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_lab(
    server: EmbeddedServer, name: str, scale: float, report: Callable[[str], None], root: Path
) -> Iterator[Lab]:
    """Make a database with the bus installed and maintained; drop it afterwards."""
    identifier = sql.Identifier(name)
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as administrator:
        administrator.execute(sql.SQL("create database {}").format(identifier))
        dsn = server.dsn(name)
        with psycopg.connect(dsn) as connection:
            install(connection, BUS)
        try:
            with (
                psycopg.connect(dsn, autocommit=True) as connection,
                Maintainer(dsn) as maintainer,
            ):
                pgbench = Pgbench(server.cluster.binaries.program("pgbench"), dsn)
                yield Lab(dsn, connection, pgbench, maintainer, scale, root, report)
        finally:
            administrator.execute(
                sql.SQL("drop database if exists {} with (force)").format(identifier)
            )
