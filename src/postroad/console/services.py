"""Status of the supervised services: reported by the supervisor, read by the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from postroad.postgres.calls import Connection, call


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """A supervisor's report on one service."""

    name: str
    state: str
    pid: int | None
    restarts: int
    since: datetime
    error: str | None = None


async def report_services(
    connection: Connection, host: str, reports: Sequence[ServiceReport]
) -> None:
    """Store the status of the services of this host."""
    listed = [{**asdict(report), "since": report.since.isoformat()} for report in reports]
    await call(connection, "console.report_services", host, Jsonb(listed))


async def forget_services(connection: Connection, host: str) -> int:
    """Remove the services of a host that no longer exists; return their number."""
    return int(await call(connection, "console.forget_services", host))
