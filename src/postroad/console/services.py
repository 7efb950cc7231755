"""Status of the supervised services: reported by the supervisor, read by the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

ServiceState = Literal["starting", "running", "waiting", "stopped"]


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """A supervisor's report on one service."""

    name: str
    state: str
    pid: int | None
    restarts: int
    since: datetime
    error: str | None = None
    host: str = ""


async def report_services(
    connection: AsyncConnection[Any], host: str, reports: Sequence[ServiceReport]
) -> None:
    """Store the status of the services of this host."""
    listed = [{**asdict(report), "since": report.since.isoformat()} for report in reports]
    await connection.execute("select console.report_services(%s, %s)", (host, Jsonb(listed)))


class ServiceBoard:
    """Removes the reports of hosts that no longer exist."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def forget(self, host: str) -> int:
        """Remove the services of a host that no longer exists; return how many."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute("select console.forget_services(%s)", (host,))
            row = await cursor.fetchone()
        return int(row[0]) if row else 0
