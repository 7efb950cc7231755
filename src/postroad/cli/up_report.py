"""Reports the status of the supervised services, every few seconds and at every change."""

from __future__ import annotations

import logging
import socket

import psycopg

from postroad.cli.supervisor import Supervisor
from postroad.console.services import ServiceReport, report_services
from postroad.postgres.calls import Connection
from postroad.postgres.connections import connect_async
from postroad.postgres.errors import DatabaseUnavailable
from postroad.service import Service, first_of

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0


class Reporter(Service):
    """Writes the status of the supervisor's services; continues after a database failure."""

    def __init__(self, dsn: str, supervisor: Supervisor) -> None:
        super().__init__("reporter")
        self._dsn = dsn
        self._supervisor = supervisor

    async def run(self) -> None:
        """Report until stopped, then once more, so that stopped services are not shown as lost."""
        self.announce_ready()
        while not self.stopping.is_set():
            try:
                async with await connect_async(
                    self._dsn, application_name="postroad up", autocommit=True
                ) as connection:
                    while not self.stopping.is_set():
                        self._supervisor.changed.clear()
                        await self._report(connection)
                        changed = self._supervisor.changed
                        await first_of(changed, self.stopping, timeout_seconds=INTERVAL_SECONDS)
                    await self._report(connection)
            except (psycopg.Error, DatabaseUnavailable, OSError) as failure:
                logger.debug("report_failed", extra={"reason": str(failure).strip()})
                await self.pause(1.0)

    async def _report(self, connection: Connection) -> None:
        reports = [
            ServiceReport(
                child.name, child.state, child.pid, child.restarts, child.since, child.error
            )
            for child in self._supervisor.children
        ]
        await report_services(connection, socket.gethostname(), reports)
