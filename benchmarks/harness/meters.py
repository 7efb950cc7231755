"""What a load costs the server: processor time, log, dead rows, MultiXacts, sessions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

__all__ = ["Meter", "Reading", "cpu_seconds_of"]

_TICKS = os.sysconf("SC_CLK_TCK")
# The place of utime in /proc/<pid>/stat after the name, which may contain spaces.
_UTIME = 11


@dataclass(frozen=True, slots=True)
class Reading:
    """Meters of the server at one moment."""

    cpu_seconds: float
    wal_bytes: int
    sessions: int


class Meter:
    """Reads the meters of one server for one database; its own session is not counted."""

    def __init__(self, administrator_dsn: str, database: str, postmaster: int) -> None:
        self._connection = psycopg.connect(administrator_dsn, autocommit=True)
        self._database = database
        self._postmaster = postmaster

    def read(self) -> Reading:
        """Read processor time first: the query itself costs some."""
        cpu = self._server_cpu_seconds()
        row = self._one(
            "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'),"
            " (select count(*) from pg_stat_activity"
            "  where datname = %s and backend_type = 'client backend')",
            (self._database,),
        )
        return Reading(cpu, int(row[0]), int(row[1]))

    def multixacts(self) -> int:
        """Return the number of MultiXacts ever created; makes a checkpoint."""
        self._connection.execute("checkpoint")
        return int(
            self._one("select next_multixact_id::text::bigint from pg_control_checkpoint()")[0]
        )

    def close(self) -> None:
        """Close the session."""
        self._connection.close()

    def _one(self, query: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(query.encode(), values).fetchone()

    def _server_cpu_seconds(self) -> float:
        """Sum the processor time of the postmaster's children, ended ones included."""
        own = self._connection.info.backend_pid
        children = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children")
        pids = {int(pid) for pid in children.read_text(encoding="ascii").split()} - {own}
        ended = _fields(self._postmaster)
        ticks = int(ended[_UTIME + 2]) + int(ended[_UTIME + 3])
        return ticks / _TICKS + sum(map(cpu_seconds_of, pids))


def dead_rows(dsn: str) -> int:
    """Return the dead rows of all tables but the system's, after the load's sessions have ended."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "select coalesce(sum(n_dead_tup), 0) from pg_stat_all_tables"
            " where schemaname not in ('pg_catalog', 'information_schema')"
        ).fetchone()
    return int(row[0]) if row else 0


def cpu_seconds_of(pid: int) -> float:
    """Return the processor time of a process, 0 when it has ended meanwhile."""
    try:
        fields = _fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[_UTIME]) + int(fields[_UTIME + 1])) / _TICKS


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
