"""From RabbitMQ to a queue of the bus: exactly once in effect for messages that carry an id.

A batch is posted in one transaction together with the ledger of ids, and acknowledged after its
commit. A crash between the two makes RabbitMQ deliver it again, and the ledger drops it. Messages
without a `message_id` cannot be recognised: they are at least once. Of a stream the offset is kept
in the same transaction, and reading resumes behind it.

```
connecting ──▶ consuming ──failure──▶ waiting ──backoff──▶ connecting
                  │ ▲
                  ▼ │ state of the inlet
                paused, drained
```

What the queue cannot take (no JSON for a jsonb queue, a header with a zero character) is kept in
`bridge.refused`, and acknowledged: it holds up no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from psycopg import AsyncConnection

from postroad.bridge import calls
from postroad.bridge.ends import speaking
from postroad.bridge.errors import BrokerUnavailable
from postroad.bridge.failures import log_failure, sentence
from postroad.bridge.pump import PumpSettings
from postroad.bridge.rabbit_backlog import end_of_stream, is_stream, ready_messages
from postroad.bridge.rabbit_posting import Posting
from postroad.bridge.rabbit_publisher import broker_failures, connect_broker
from postroad.bridge.rabbit_reading import read_leniently
from postroad.bridge.rabbit_topology import RabbitRoute, declare
from postroad.bus import calls as bus_calls
from postroad.bus.notifier import AsyncNotifier
from postroad.bus.payload import Payload
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.session import run_async
from postroad.postgres.connections import connect_async
from postroad.service import Service

__all__ = ["RabbitIn", "broker_label"]

LOOK_SECONDS = 0.5
NOTE_SECONDS = 5.0
# Twice as many are prefetched, and bodies may be large.
RABBIT_BATCH_MOST = 1_000
# So many looks in a row that find nothing mean that nothing is left.
QUIET_LOOKS = 2

Incoming: TypeAlias = "asyncio.Queue[AbstractIncomingMessage | None]"


def broker_label(url: str, queue: str) -> str:
    """Name a queue of a broker for people and for the ledger: without user and password."""
    parts = urlsplit(url)
    return f"rabbitmq:{parts.hostname}:{parts.port or 5672}{parts.path or '/'} {queue}"


class RabbitIn(Service):
    """Carries messages from a queue of RabbitMQ; `await install()` once, then run it."""

    def __init__(
        self,
        name: str,
        *,
        url: str,
        target: str,
        queue: str,
        route: RabbitRoute | None = None,
        settings: PumpSettings | None = None,
    ) -> None:
        super().__init__(f"bridge {name}")
        self.bridge = name
        self.queue = queue
        read_leniently()
        self._url = url
        self._target = target
        self.route = route or RabbitRoute(queue=queue)
        if self.route.queue is None:
            raise ValueError("a bridge from RabbitMQ needs a queue to read")
        self._from = self.route.queue
        self._label = broker_label(url, self._from)
        self.settings = settings or PumpSettings()
        self._most = min(self.settings.batch_messages, RABBIT_BATCH_MOST)
        self.posting = Posting(name, self._label)
        self._in_hand = 0
        self._is_leaving = False
        self._is_stream = False
        # Whether something went well since the last failure, and whether a problem may be noted.
        self._is_well = False
        self._has_problem = True

    @property
    def delivered(self) -> int:
        """How many messages were posted since it began."""
        return self.posting.delivered

    @property
    def dropped(self) -> int:
        """How many of them had come before, or came home."""
        return self.posting.dropped

    @property
    def refused(self) -> int:
        """How many cannot be posted and are kept apart."""
        return self.posting.refused

    async def install(self) -> None:
        """Open the inlet at the target. Raises QueueNotFound when its queue is not there."""
        async with speaking(self._target) as connection:
            await connection.execute(
                "select bridge.open_inlet(%s, %s, %s)", (self.bridge, self._label, self.queue)
            )

    async def run(self) -> None:
        """Consume until stopped, whatever happens to either end."""
        work = asyncio.create_task(self._work(), name=self.name)
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            # Nothing needs an end in order: what is not acknowledged comes again.
        finally:
            stopping.cancel()
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    async def _work(self) -> None:
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                await self._carry(backoff)
            except* Exception as failures:  # noqa: BLE001 - whatever it is, a bridge tries again
                self.announce_ready()
                problem = sentence(failures.exceptions[0])
                log_failure(self.bridge, problem, failures)
                self._is_well, self._has_problem = False, True
                await self._note(problem)
                self.signals.emit("failed", problem)
                await self.pause(backoff.next_seconds())

    async def _carry(self, backoff: Backoff) -> None:
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(self._connect("post"))
            watch = await stack.enter_async_context(self._connect("watch", autocommit=True))
            if not await calls.hold(watch, f"in {self.bridge}", 0):
                self.announce_ready()
                await self.pause(LOOK_SECONDS)
                return
            if await calls.state(watch, self.bridge) in ("paused", "drained"):
                self.announce_ready()
                self.signals.emit("paused")
                await self.pause(LOOK_SECONDS)
                return
            payload = cast("Payload", await run_async(watch, bus_calls.describe(self.queue)))
            connection = await connect_broker(self._url, self.name)
            stack.push_async_callback(_close, connection)
            with broker_failures():
                channel = await connection.channel(publisher_confirms=False)
                await channel.set_qos(prefetch_count=2 * self._most)
            await declare(channel, self.route)
            self._is_stream = self.route.kind == "stream" or (
                self.route.kind == "existing" and await is_stream(connection, self._from)
            )

            async def send(queues: list[str]) -> None:
                await run_async(watch, bus_calls.notify(*queues))

            notifier = AsyncNotifier(send)
            stack.push_async_callback(notifier.close)
            incoming: Incoming = asyncio.Queue()
            self._in_hand, self._is_leaving = 0, False
            channel.close_callbacks.add(lambda *_: incoming.put_nowait(None))
            await self._consume(channel, watch, incoming)
            self.announce_ready()
            self.signals.emit("consuming")
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(
                    self._keep(watch, connection, channel, incoming, backoff)
                )
                await self._post_all(target, payload, incoming, notifier)
                keeper.cancel()

    async def _consume(
        self,
        channel: AbstractChannel,
        watch: AsyncConnection[Any],
        incoming: Incoming,
    ) -> None:
        arguments: dict[str, Any] = {}
        if self._is_stream:
            known = self.posting.position = await calls.position(watch, self.bridge, self._label)
            arguments["x-stream-offset"] = "first" if known is None else known + 1

        async def keep(message: AbstractIncomingMessage) -> None:
            incoming.put_nowait(message)

        with broker_failures():
            queue = await channel.get_queue(self._from, ensure=False)
            await queue.consume(keep, arguments=arguments or None)

    async def _post_all(
        self,
        target: AsyncConnection[Any],
        payload: Payload,
        incoming: Incoming,
        notifier: AsyncNotifier,
    ) -> None:
        while True:
            gathered = [await incoming.get()]
            while len(gathered) < self._most and not incoming.empty():
                gathered.append(incoming.get_nowait())
            is_last = None in gathered
            if is_last:
                if self.stopping.is_set():
                    return
                if not self._is_leaving:
                    raise BrokerUnavailable("the channel to RabbitMQ was closed")
                # What came before the mark is posted: given back it would count as tried.
                gathered = gathered[: gathered.index(None)]
                if not gathered:
                    return
            messages = cast("list[AbstractIncomingMessage]", gathered)
            self._in_hand = len(messages)
            await self.posting.post(target, payload, messages)
            self.signals.emit("posted", len(messages))
            with broker_failures():
                # All of one channel and in order: one acknowledgement for all up to the last.
                await messages[-1].ack(multiple=True)
            self._in_hand = 0
            self._is_well = True
            notifier.announce(self.queue)
            self.signals.emit("acknowledged", len(messages))
            if is_last:
                return

    async def _keep(
        self,
        watch: AsyncConnection[Any],
        connection: AbstractConnection,
        channel: AbstractChannel,
        incoming: Incoming,
        backoff: Backoff,
    ) -> None:
        loop = asyncio.get_running_loop()
        noted_at = loop.time() - NOTE_SECONDS
        quiet_looks = 0
        while True:
            state = await calls.state(watch, self.bridge)
            if state in ("paused", "drained"):
                self._is_leaving = True
                incoming.put_nowait(None)
                self.signals.emit("leaving")
                return
            # A message may be on its way from the socket: one quiet look proves nothing.
            quiet_looks = 0 if self._in_hand or not incoming.empty() else quiet_looks + 1
            if self._is_well or quiet_looks >= QUIET_LOOKS:
                await self._be_well(watch, backoff)
            if state == "draining" and quiet_looks >= QUIET_LOOKS:
                if await self._waiting(connection, channel, incoming) == 0:
                    await calls.note_waiting(watch, self.bridge, self._label, 0)
                    await calls.set_state(watch, self.bridge, "drained")
                    continue
                quiet_looks = 0
            if loop.time() - noted_at >= NOTE_SECONDS:
                waiting = await self._waiting(connection, channel, incoming)
                await calls.note_waiting(watch, self.bridge, self._label, waiting)
                await calls.settle(watch, self.bridge, self._label, [], [], self.settings.keep)
                noted_at = loop.time()
            await asyncio.sleep(LOOK_SECONDS)

    async def _be_well(self, watch: AsyncConnection[Any], backoff: Backoff) -> None:
        # Connecting alone proves nothing: what stopped the bridge may be the next message.
        backoff.reset()
        if self._has_problem:
            await calls.note_problem(watch, self.bridge, None)
            self._has_problem = False

    async def _waiting(
        self, connection: AbstractConnection, channel: AbstractChannel, incoming: Incoming
    ) -> int:
        here = self._in_hand + incoming.qsize()
        if not self._is_stream:
            return here + await ready_messages(channel, self._from)
        end = await end_of_stream(connection, self._from)
        if end is None:
            return here
        position = self.posting.position
        return max(here, end - (-1 if position is None else position))

    async def _note(self, problem: str) -> None:
        with contextlib.suppress(*SURVIVABLE):
            async with self._connect("watch", autocommit=True) as connection:
                await calls.note_problem(connection, self.bridge, problem)

    @asynccontextmanager
    async def _connect(
        self, part: str, *, autocommit: bool = False
    ) -> AsyncIterator[AsyncConnection[Any]]:
        connection = await connect_async(
            self._target,
            application_name=f"postroad bridge {self.bridge} {part}",
            autocommit=autocommit,
        )
        try:
            await calls.guard(connection)
            yield connection
        finally:
            await connection.close()


async def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):
        await asyncio.wait_for(connection.close(), 5)
