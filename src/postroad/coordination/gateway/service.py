"""The Gateway as a service: waits for the Writer's tables, serves its entities, follows new ones.

```
waiting ──the Writer's schema exists──> serving ──entities were registered or altered──┐
                                           ▲────────── routes replaced ────────────────┘
```
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Literal

import psycopg
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.coordination.gateway.application import (
    AFTER_TIMEOUT_DEFAULT,
    make_application,
    open_databases,
)
from postroad.coordination.gateway.shapes import Shape, read_shapes
from postroad.postgres.connections import Pool
from postroad.service import Service
from postroad.settings import HttpSettings
from postroad.web.server import WebServer

logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 1.0
# A schema that is not installed yet is waited for like a server that does not run yet.
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
        publish: Callable[[ASGIApp], AbstractAsyncContextManager[None]] | None = None,
    ) -> None:
        super().__init__("coordination gateway")
        self._http = http
        self._publish = publish
        self._databases = (writer, coordinator, reader)
        self._options: dict[str, Any] = {
            "after_timeout": after_timeout,
            "token": token,
            "is_stopping": self.stopping.is_set,
        }
        self._host = host
        self._port = port
        self._app: ASGIApp
        self.server: WebServer | None = None

    @property
    def url(self) -> str:
        """Where it listens, once it is ready."""
        return self.server.url if self.server is not None else ""

    async def run(self) -> None:
        """Serve the tracked entities, those that are registered later included."""
        backoff = Backoff(longest=timedelta(seconds=FOLLOW_SECONDS))
        async with open_databases(*self._databases) as databases:
            while (shapes := await self._read_shapes(databases.writer, "tracked")) is None:
                if await self.pause(backoff.next_seconds()):
                    return
            replicas = await self._read_shapes(databases.reader, "replica")
            self._app = make_application(databases, shapes, replicas, **self._options)
            async with self._serving():
                self.announce_ready()
                while not await self.pause(FOLLOW_SECONDS):
                    found = await self._read_shapes(databases.writer, "tracked")
                    copies = await self._read_shapes(databases.reader, "replica")
                    if found not in (None, shapes) or copies not in (None, replicas):
                        shapes = shapes if found is None else found
                        replicas = replicas if copies is None else copies
                        self._app = make_application(databases, shapes, replicas, **self._options)
                        self.signals.emit("followed", [shape.name for shape in shapes])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A request in flight ends in the application that received it.
        await self._app(scope, receive, send)

    def _serving(self) -> AbstractAsyncContextManager[Any]:
        if self._publish is not None:
            return self._publish(self._answer)
        self.server = WebServer(
            self._answer, host=self._host, port=self._port, name=self.name, http=self._http
        )
        return self.server

    async def _read_shapes(
        self, database: Pool, role: Literal["tracked", "replica"]
    ) -> list[Shape] | None:
        try:
            async with database.connection(timeout=FOLLOW_SECONDS) as connection:
                return await read_shapes(connection, role)
        except _NOT_YET as failure:
            # Later each request reports it.
            level = logging.DEBUG if self._ready.is_set() else logging.WARNING
            logger.log(level, "entities_not_read", extra={"reason": str(failure).strip()})
            self.signals.emit("waiting", str(failure))
            return None
