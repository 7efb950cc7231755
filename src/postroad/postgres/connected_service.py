"""A service that repeats a piece of work on database connections and reconnects when they break."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import psycopg

from postroad.backoff import Backoff
from postroad.errors import PostroadError
from postroad.postgres.connections import Options, connect_async
from postroad.service import Service

logger = logging.getLogger(__name__)


class ConnectedService(Service):
    """The loop of services that need only a session."""

    async def repeat(
        self,
        work: Callable[..., Awaitable[object]],
        *dsns: str,
        event: str,
        task: str | None = None,
        is_pooled: bool = False,
        level: int = logging.WARNING,
    ) -> None:
        """Call `work` with a connection to each database until the service is to stop.

        `work` pauses where necessary. A lost connection or another database error is logged as
        `event`, and all connections are opened again.
        """
        name = task or self.name
        options = Options(application_name=f"postroad {name}", autocommit=True, is_pooled=is_pooled)
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                async with AsyncExitStack() as stack:
                    connections = [
                        await stack.enter_async_context(await connect_async(dsn, **options))
                        for dsn in dsns
                    ]
                    while not self.stopping.is_set():
                        await work(*connections)
                        backoff.reset()
            except (psycopg.Error, PostroadError, OSError) as failure:
                logger.log(level, event, extra={"task": name, "reason": str(failure).strip()})
                self.signals.emit("lost")
                await self.pause(backoff.next_seconds())
