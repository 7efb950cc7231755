"""The Gateway as a service: waits for the Writer's tables, serves its entities, follows new ones.

```
waiting ──the Writer's schema exists──> serving ──entities were registered or altered──┐
                                           ▲────────── routes replaced ────────────────┘
```
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Literal

import psycopg
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad.bus.reconnect import TRANSIENT
from postroad.coordination.gateway.application import make_application
from postroad.coordination.gateway.shapes import Shape, read_shapes
from postroad.postgres.connections import Pool, open_async_pool
from postroad.service import Service
from postroad.settings import HttpSettings
from postroad.web.server import Publish, WebServer

logger = logging.getLogger(__name__)

AFTER_TIMEOUT_DEFAULT = timedelta(seconds=5)
FOLLOW_SECONDS = 1.0
# Wait for a schema that is not installed, as for a server that does not run.
_NOT_YET = (*TRANSIENT, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)


class Gateway(Service):
    """Serves the entities over HTTP until it is stopped: on a port, or through `publish`."""

    def __init__(
        self,
        writer: str,
        coordinator: str,
        reader: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        after_timeout: timedelta = AFTER_TIMEOUT_DEFAULT,
        token: str,
        http: HttpSettings | None = None,
        publish: Publish | None = None,
    ) -> None:
        super().__init__("coordination gateway")
        self._databases = (writer, coordinator, reader)
        self._after_timeout = after_timeout
        self._token = token
        self._app: ASGIApp
        self._server = WebServer(
            self._answer, host=host, port=port, name=self.name, http=http, publish=publish
        )

    @property
    def url(self) -> str:
        """The address where it listens, once it is ready."""
        return self._server.url

    async def run(self) -> None:
        """Serve the tracked entities, including those registered later."""
        async with AsyncExitStack() as stack:
            pools = [
                await stack.enter_async_context(
                    await open_async_pool(dsn, application_name="postroad gateway")
                )
                for dsn in self._databases
            ]
            shapes: list[Shape] | None = None
            replicas: list[Shape] | None = None
            while True:
                known = shapes, replicas
                shapes = await self._read_shapes(pools[0], "tracked", shapes)
                replicas = await self._read_shapes(pools[-1], "replica", replicas)
                if shapes is not None and (shapes, replicas) != known:
                    self._app = make_application(
                        pools,
                        shapes,
                        replicas or [],
                        after_timeout=self._after_timeout,
                        token=self._token,
                        is_stopping=self.stopping.is_set,
                    )
                    if not self._ready.is_set():
                        await stack.enter_async_context(self._server)
                        self.announce_ready()
                    self.signals.emit("followed", [shape.name for shape in shapes])
                if await self.pause(FOLLOW_SECONDS):
                    return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A request in flight ends in the application that received it.
        await self._app(scope, receive, send)

    async def _read_shapes(
        self, database: Pool, role: Literal["tracked", "replica"], known: list[Shape] | None
    ) -> list[Shape] | None:
        try:
            async with database.connection(timeout=FOLLOW_SECONDS) as connection:
                return await read_shapes(connection, role)
        except _NOT_YET as failure:
            # After the start each request reports it.
            level = logging.DEBUG if self._ready.is_set() else logging.WARNING
            logger.log(level, "entities_not_read", extra={"reason": str(failure).strip()})
            self.signals.emit("waiting", str(failure))
            return known
