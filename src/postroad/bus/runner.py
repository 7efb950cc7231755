"""Connections and cached payload types of a bus."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, TypeVar

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from postroad.blocking import entered, resolved
from postroad.bus import calls
from postroad.bus.call import AnyCall, Call, OfQueue, Procedure
from postroad.bus.errors import BusError, InvalidArgument, QueueBusy, is_overtaken
from postroad.bus.notifier import Notifier
from postroad.bus.payload import Payload, of_queue
from postroad.bus.request import Question, Reply
from postroad.bus.requester import Requester
from postroad.bus.session import make_pool, run_async
from postroad.bus.wakeup import AsyncWakeup, Wakeup
from postroad.postgres.calls import AnyConnection
from postroad.postgres.listen import ListenHub
from postroad.service import AutoResetEvent, OnDemand, OnDemandThread

T = TypeVar("T")
AnyPool: TypeAlias = AsyncConnectionPool[Any] | ConnectionPool[Any]


class AsyncRunner:
    """Runs calls on the caller's connection, or each in its own transaction.

    `Runner` does the same on blocking connections: its coroutines are never suspended.
    """

    def __init__(
        self, source: str | AnyPool | AnyConnection, *, notify: bool, listen: bool
    ) -> None:
        self.payloads: dict[str, Payload] = {}
        self._dsn = source if isinstance(source, str) else None
        self._connection: AnyConnection | None = None
        self._pool: Any = None
        if isinstance(source, str):
            self._pool = make_pool(self._pool_type, source, is_pooled=not listen)
        elif isinstance(source, AsyncConnection | Connection):
            self._connection = source
        else:
            self._pool = source
        self._listens = listen
        self._notifies = notify and self._pool is not None
        self._notifier = Notifier(self._send, blocks=self._blocks)
        self._requester = self._on_demand(partial(Requester, self._dsn or "", notify=notify))
        self._is_open = self._dsn is None
        self._hub: ListenHub | None = None

    make_event: type[AutoResetEvent | threading.Event] = AutoResetEvent
    _blocks = False
    _pool_type: type[AnyPool] = AsyncConnectionPool
    _on_demand: type[OnDemand[Any] | OnDemandThread[Any]] = OnDemand

    async def close(self) -> None:
        """Send pending notifications and close own connections; a second call does nothing."""
        await self._notifier.close()
        if self._hub is not None:
            await self._hub.stop()
        await resolved(self._requester.stop())
        if self._dsn is not None:
            await resolved(self._pool.close())

    async def run(self, call: AnyCall[T]) -> T:
        """Run a call; repeat it in a transaction of the bus if the queue was changed meanwhile."""
        if isinstance(call, Procedure):
            return await call.work(self)
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
            if self._connection is None:
                raise InvalidArgument(
                    "a temporary queue belongs to a session, and a pool has several sessions",
                    hint="use bus.using(connection), and keep the connection as long as the queue",
                )
            return await run_async(self._connection, call)
        async with self._connected(call.queue) as connection:
            return await run_async(connection, call)

    async def payload(self, queue: str) -> Payload:
        """Return the payload type of a queue, cached if possible. Raises QueueNotFound."""
        payload = self.payloads.get(queue)
        if payload is None:
            payload = of_queue(queue, await self.run(calls.describe(queue)))
            self.payloads[queue] = payload
        return payload

    async def ask(self, question: Question) -> Reply:
        """Post a request and wait for its answer. Raises InvalidArgument without a session."""
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
        return await resolved(self._requester.call(lambda requester: requester.ask(question)))

    def announce(self, queue: str) -> None:
        """Notify the waiters of this queue soon; without a notifier they rely on polling."""
        if self._notifies:
            self._notifier.announce(queue)

    def wakeup(self, queue: str, poll_interval: timedelta) -> AsyncWakeup | Wakeup:
        """Return the wakeup of this queue. Raises InvalidArgument without a pool."""
        if self._pool is None:
            raise InvalidArgument(
                "waiting for messages needs the bus's own connections",
                hint="create the bus from a DSN or a pool; a connection has one transaction only",
            )
        return self._make_wakeup([queue], poll_interval)

    def _make_wakeup(self, queues: list[str], poll_interval: timedelta) -> AsyncWakeup | Wakeup:
        if self._hub is None and self._listens and self._dsn is not None:
            self._hub = ListenHub(self._dsn)
        return AsyncWakeup(self._positions, queues, hub=self._hub, poll_interval=poll_interval)

    async def _positions(self, queues: list[str]) -> list[int]:
        return await self.run(calls.positions(*queues))

    async def _send(self, queues: list[str]) -> None:
        await self.run(calls.notify(*queues).unflushed())

    @asynccontextmanager
    async def _connected(self, queue: str | None) -> AsyncIterator[Any]:
        try:
            if self._pool is None:
                yield self._connection
                return
            if not self._is_open:
                # Opening twice is harmless, so two concurrent first calls need no lock.
                await resolved(self._pool.open())
                self._is_open = True
            async with entered(self._pool.connection()) as connection:
                yield connection
        except BusError:
            # The queue may have been dropped, or created again with another payload.
            self.payloads.pop(queue or "", None)
            raise


class Runner(AsyncRunner):
    """Runs calls for a bus that blocks."""

    make_event = threading.Event
    _blocks = True
    _pool_type = ConnectionPool
    _on_demand = OnDemandThread

    def _make_wakeup(self, queues: list[str], poll_interval: timedelta) -> Wakeup:
        dsn = self._dsn if self._listens else None
        # Only the thread of the wakeup blocks.
        return Wakeup(self._positions, queues, dsn=dsn, poll_interval=poll_interval)
