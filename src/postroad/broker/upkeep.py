"""Maintenance: due messages, expired leases, expired queues. Any consuming process may run it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from postroad.bus import calls
from postroad.bus.measures import Measures
from postroad.bus.session import run_async
from postroad.postgres.calls import Connection, call
from postroad.postgres.connected_service import ConnectedService

INTERVAL_SECONDS = 0.25
SWEEP_SECONDS = 10.0


class Upkeep(ConnectedService):
    """Calls broker.maintain as long as the connection consumes.

    One process at a time does the work. With an elected leader it would stop when the leader's
    network fails.
    """

    def __init__(self, dsn: str, measures: Mapping[str, Measures]) -> None:
        super().__init__("broker upkeep")
        self._dsn = dsn
        self._measures = measures
        self._swept = 0.0

    async def run(self) -> None:
        """Maintain until stopped; reconnect after errors."""
        self.announce_ready()
        # Without prepared statements, which a pooler in transaction mode could mix up.
        await self.repeat(self._maintain, self._dsn, event="upkeep_failed", is_pooled=True)

    async def _maintain(self, connection: Connection) -> None:
        await call(connection, "broker.maintain")
        if time.monotonic() - self._swept > SWEEP_SECONDS:
            self._swept = time.monotonic()
            await call(connection, "broker.clear_queues")
            await call(connection, "broker.clear_results")
            await self._send_measures(connection)
        if await self.pause(INTERVAL_SECONDS):
            await self._send_measures(connection)

    async def _send_measures(self, connection: Connection) -> None:
        for measures in list(self._measures.values()):
            if (taken := measures.take()) is not None:
                await run_async(connection, calls.measure(*taken))
