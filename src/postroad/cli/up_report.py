"""Reports the status of the supervised services, every few seconds and at every change."""

from __future__ import annotations

import logging
import socket

from postroad.cli.supervisor import Supervisor
from postroad.console.services import ServiceReport, report_services
from postroad.postgres.calls import Connection
from postroad.postgres.connected_service import ConnectedService
from postroad.service import first_of

INTERVAL_SECONDS = 5.0


class Reporter(ConnectedService):
    """Writes the status of the supervisor's services; continues after a database failure."""

    def __init__(self, dsn: str, supervisor: Supervisor) -> None:
        super().__init__("up")
        self._dsn = dsn
        self._supervisor = supervisor

    async def run(self) -> None:
        """Report until stopped, then once more, so that stopped services are not shown as lost."""
        self.announce_ready()
        await self.repeat(self._follow, self._dsn, event="report_failed", level=logging.DEBUG)

    async def _follow(self, connection: Connection) -> None:
        changed = self._supervisor.changed
        changed.clear()
        await self._report(connection)
        await first_of(changed, self.stopping, timeout_seconds=INTERVAL_SECONDS)
        if self.stopping.is_set():
            await self._report(connection)

    async def _report(self, connection: Connection) -> None:
        reports = [
            ServiceReport(
                child.name, child.state, child.pid, child.restarts, child.since, child.error
            )
            for child in self._supervisor.children
        ]
        await report_services(connection, socket.gethostname(), reports)
