"""The Gateway as a service: waits for the Writer, learns its entities, serves."""

from __future__ import annotations

import logging
from datetime import timedelta

from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.coordination.gateway.application import (
    AFTER_TIMEOUT_DEFAULT,
    make_application,
    open_databases,
)
from postroad.coordination.gateway.shapes import Shape, read_shapes
from postroad.postgres.connections import connect_async
from postroad.service import Service
from postroad.web import WebServer

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)


class Gateway(Service):
    """Serves the room's HTTP until it is stopped; port 0 takes a free one."""

    def __init__(
        self,
        writer: str,
        coordinator: str,
        reader: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        after_timeout: timedelta = AFTER_TIMEOUT_DEFAULT,
        token: str | None = None,
    ) -> None:
        super().__init__("coordination gateway")
        self._databases = (writer, coordinator, reader)
        self._after_timeout = after_timeout
        self._token = token
        self._host = host
        self._port = port
        self.server: WebServer | None = None

    @property
    def url(self) -> str:
        """Where it listens, once it is ready."""
        return self.server.url if self.server is not None else ""

    async def run(self) -> None:
        """Serve the entities that are tracked when it starts."""
        shapes = await self._shapes()
        if shapes is None:
            return
        async with open_databases(*self._databases) as databases:
            app = make_application(
                databases,
                shapes,
                after_timeout=self._after_timeout,
                token=self._token,
                is_stopping=self.stopping.is_set,
            )
            self.server = WebServer(app, host=self._host, port=self._port, name=self.name)
            async with self.server:
                self.announce_ready()
                await self.stopping.wait()

    async def _shapes(self) -> list[Shape] | None:
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                connection = await connect_async(self._databases[0], autocommit=True)
                try:
                    return await read_shapes(connection)
                finally:
                    await connection.close()
            except TRANSIENT as failure:
                logger.warning("database_unavailable", extra={"reason": str(failure).strip()})
                await self.pause(backoff.next_seconds())
        return None
