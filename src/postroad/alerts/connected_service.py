"""A service that repeats a piece of work on database connections and reconnects when they break."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import psycopg

from postroad.alerts.errors import AlertsError
from postroad.backoff import Backoff
from postroad.postgres.connections import connect_async
from postroad.postgres.errors import DatabaseUnavailable
from postroad.service import Service

logger = logging.getLogger(__name__)


class ConnectedService(Service):
    """The loop that the sender, the relay and the watchers of alerts share."""

    async def repeat(
        self,
        work: Callable[..., Awaitable[bool | None]],
        *dsns: str,
        interval: timedelta,
        event: str,
        task: str | None = None,
        is_pooled: bool = False,
    ) -> None:
        """Call `work` with a connection to each database until the service is to stop.

        The call is repeated without a pause while it returns true, which stands for more work. A
        lost connection is logged as `event`, and all connections are opened again.
        """
        name = task or self.name
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                async with AsyncExitStack() as stack:
                    connections = []
                    for dsn in dsns:
                        opened = await connect_async(
                            dsn,
                            application_name=f"postroad {name}",
                            autocommit=True,
                            is_pooled=is_pooled,
                        )
                        connections.append(await stack.enter_async_context(opened))
                    while not self.stopping.is_set():
                        has_more = await work(*connections)
                        backoff.reset()
                        if not has_more:
                            await self.pause(interval.total_seconds())
            except (psycopg.Error, AlertsError, DatabaseUnavailable, OSError) as failure:
                logger.warning(event, extra={"task": name, "reason": str(failure).strip()})
                await self.pause(backoff.next_seconds())
