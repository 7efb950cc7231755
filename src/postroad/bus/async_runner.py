"""Connections and cached payload types of a bus that awaits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from postroad.bus import calls
from postroad.bus.async_requester import AsyncRequester
from postroad.bus.async_wakeup import AsyncWakeup
from postroad.bus.call import AnyCall, Call, OfQueue
from postroad.bus.errors import BusError, InvalidArgument, QueueBusy, is_overtaken
from postroad.bus.notifier import AsyncNotifier
from postroad.bus.payload import Payload, of_queue
from postroad.bus.session import make_async_pool, required, run_async
from postroad.postgres.listen import ListenHub

T = TypeVar("T")


class AsyncRunner:
    """Runs calls on the caller's connection, or each in its own transaction."""

    def __init__(
        self,
        source: str | AsyncConnectionPool[Any] | AsyncConnection[Any],
        *,
        notify: bool,
        listen: bool,
    ) -> None:
        self.payloads: dict[str, Payload] = {}
        self._dsn = source if isinstance(source, str) else None
        self._connection = source if isinstance(source, AsyncConnection) else None
        self._pool: AsyncConnectionPool[Any] | None = None
        if isinstance(source, str):
            self._pool = make_async_pool(source, is_pooled=not listen)
        elif not isinstance(source, AsyncConnection):
            self._pool = source
        self._listens = listen
        self._notifier = AsyncNotifier(self._send) if notify and self._pool else None
        self._requester: AsyncRequester | None = None
        self._is_open = self._dsn is None
        self._hub: ListenHub | None = None

    async def close(self) -> None:
        """Send pending notifications and close own connections; a second call does nothing."""
        if self._notifier is not None:
            await self._notifier.close()
        if self._hub is not None:
            await self._hub.stop()
        if self._requester is not None:
            await self._requester.close()
        if self._dsn is not None and self._pool is not None:
            await self._pool.close()

    async def run(self, call: AnyCall[T]) -> T:
        """Run one call; in an own transaction, again if the queue was changed in the meantime."""
        if isinstance(call, OfQueue):
            known = self.payloads.get(call.queue) or call.otherwise
            call = call.build(known or await self.payload(call.queue))
        self.payloads.pop(call.reshapes or "", None)
        try:
            result = await self._run_once(call)
        except QueueBusy as error:
            if self._pool is None or not is_overtaken(error.__cause__):
                raise
            result = await self._run_once(call)
        if call.makes is not None:
            self.payloads[str(result)] = call.makes
        for queue in call.wakes:
            self.announce(queue)
        return result

    async def _run_once(self, call: Call[T]) -> T:
        if call.needs_session:
            return await run_async(required(self._connection), call)
        async with self._connected(call.queue) as connection:
            return await run_async(connection, call)

    async def payload(self, queue: str) -> Payload:
        """Return the payload type of a queue, cached if possible. Raises QueueNotFound."""
        payload = self.payloads.get(queue)
        if payload is None:
            payload = of_queue(queue, await self.run(calls.describe(queue)))
            self.payloads[queue] = payload
        return payload

    def requester(self) -> AsyncRequester:
        """Return the requester. Raises InvalidArgument without a session."""
        if self._dsn is None:
            raise InvalidArgument(
                "a request needs a session that waits for the answer",
                hint="create the bus from a DSN; in your own transaction call mbus.request",
            )
        if not self._listens:
            raise InvalidArgument(
                "a request needs a session, which a transaction-mode pooler does not provide",
                hint="create a bus for requests from a DSN that connects to the server directly",
            )
        if self._requester is None:
            self._requester = AsyncRequester(self._dsn, notify=self._notifier is not None)
        return self._requester

    def announce(self, queue: str) -> None:
        """Notify the waiters of this queue soon; without a notifier they rely on polling."""
        if self._notifier is not None:
            self._notifier.announce(queue)

    def wakeup(self, queue: str, poll_interval: timedelta) -> AsyncWakeup:
        """Return the wakeup of this queue. Raises InvalidArgument without a pool."""
        if self._pool is None:
            raise InvalidArgument(
                "waiting for messages needs the bus's own connections",
                hint="create the bus from a DSN or a pool; a connection has one transaction only",
            )
        if self._hub is None and self._listens and self._dsn is not None:
            self._hub = ListenHub(self._dsn)
        return AsyncWakeup(
            lambda queues: self.run(calls.positions(*queues)),
            [queue],
            hub=self._hub,
            poll_interval=poll_interval,
        )

    async def _send(self, queues: list[str]) -> None:
        await self.run(calls.notify(*queues))

    @asynccontextmanager
    async def _connected(self, queue: str | None) -> AsyncIterator[AsyncConnection[Any]]:
        try:
            if self._pool is not None:
                if not self._is_open:
                    # Opening twice is harmless, so two concurrent first calls need no lock.
                    await self._pool.open()
                    self._is_open = True
                async with self._pool.connection() as connection:
                    yield connection
            elif self._connection is not None:
                yield self._connection
        except BusError:
            # The queue may have been dropped, or created again with another payload.
            self.payloads.pop(queue or "", None)
            raise
