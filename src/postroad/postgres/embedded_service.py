"""Keeps the embedded server running for as long as a process needs it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from postroad.postgres.embedded import EmbeddedServer
from postroad.service import Service

WATCH_INTERVAL_DEFAULT = timedelta(seconds=1)


class EmbeddedService(Service):
    """Uses the server until stopped, and starts it again when it died in between."""

    def __init__(
        self, server: EmbeddedServer, *, watch_interval: timedelta = WATCH_INTERVAL_DEFAULT
    ) -> None:
        super().__init__("embedded server")
        self._server = server
        self._watch_interval = watch_interval

    async def run(self) -> None:
        """Start, watch, leave. What blocks runs in a thread."""
        await asyncio.to_thread(self._server.start)
        try:
            self.announce_ready()
            while not await self.pause(self._watch_interval.total_seconds()):
                if await asyncio.to_thread(self._server.revive):
                    self.signals.emit("revived")
        finally:
            await asyncio.to_thread(self._server.stop)

    def dsn(self) -> str:
        """Return how to connect, once the service is ready."""
        return self._server.dsn()
