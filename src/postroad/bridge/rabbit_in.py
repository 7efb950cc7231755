"""From RabbitMQ to a queue of the bus: exactly once in effect for messages that carry an id.

A batch is posted in one transaction together with the ledger of ids, and acknowledged after its
commit. A crash between the two makes RabbitMQ deliver it again, and the ledger drops it. Messages
without a `message_id` cannot be recognised: they are delivered at least once. The offset of a
stream is kept in the same transaction, and reading resumes after it.

A message that the queue cannot take (invalid JSON for a jsonb queue, a header with a NUL character)
is kept in `bridge.refused` and acknowledged, so that it does not block the others. If the target
refuses a batch with an unexpected error, its messages are posted one by one.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, cast

from aio_pika.abc import AbstractIncomingMessage
from psycopg import DataError
from psycopg.errors import ProgramLimitExceeded

from postroad.bridge import rabbit
from postroad.bridge.amqp_decoding import tolerate_invalid_values
from postroad.bridge.calls import Batch, call, receive, transact
from postroad.bridge.errors import BrokerUnavailable
from postroad.bridge.rabbit import RabbitRoute
from postroad.bridge.rabbit_mapping import arrive, readable
from postroad.bridge.rabbit_out import MAX_RABBIT_BATCH
from postroad.bridge.service import (
    STATE_SECONDS,
    BridgeService,
    PumpSettings,
    describe_failure,
    notifier_on,
)
from postroad.bus import calls as bus_calls
from postroad.bus.notifier import Notifier
from postroad.bus.payload import Payload
from postroad.bus.session import run_async
from postroad.postgres.calls import Connection

NOTE_SECONDS = 5.0
# One empty read does not mean the end: the broker may still be sending.
QUIET_CHECKS = 2
# Unexpected errors that repeat with the same message.
UNEXPECTED = (DataError, ProgramLimitExceeded, ValueError, TypeError, OverflowError)


class RabbitIn(BridgeService):
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
        # No grace period at the end: messages that are not acknowledged are delivered again.
        super().__init__(name, queue, target, settings)
        tolerate_invalid_values()
        self._url = url
        self.route = route or RabbitRoute(queue=queue)
        if self.route.queue is None:
            raise ValueError("a bridge from RabbitMQ needs a queue to read")
        self._from = self.route.queue
        self._label = rabbit.broker_label(url, self._from)
        self._max_batch = min(self.settings.batch_messages, MAX_RABBIT_BATCH)
        # For a stream, the offset up to which everything has been posted.
        self._position: int | None = None

    async def install(self) -> None:
        """Create the inlet at the target. Raises QueueNotFound when its queue does not exist."""
        async with transact(self._dsn) as connection:
            await call(connection, "open_inlet", self.bridge, self._label, self.queue)

    async def transfer(self) -> None:
        """Consume until the service is to stop or the bridge is paused."""
        async with AsyncExitStack() as stack:
            self._target = await stack.enter_async_context(self.connect("post"))
            watch = await stack.enter_async_context(self.connect("watch", autocommit=True))
            if not await call(watch, "hold", f"in {self.bridge}", 0):
                await self.stand_by("standby")
                return
            if await call(watch, "state", self.bridge) in ("paused", "drained"):
                await self.stand_by("paused")
                return
            self._payload = cast("Payload", await run_async(watch, bus_calls.describe(self.queue)))
            self._broker = await rabbit.connect_broker(self._url, self.name)
            stack.push_async_callback(rabbit.close_broker, self._broker)
            with rabbit.broker_failures():
                self._channel = await self._broker.channel(publisher_confirms=False)
                await self._channel.set_qos(prefetch_count=2 * self._max_batch)
            await rabbit.declare(self._channel, self.route)
            self._is_stream = self.route.kind == "stream" or (
                self.route.kind == "existing" and await rabbit.is_stream(self._broker, self._from)
            )
            notifier = notifier_on(watch)
            stack.push_async_callback(notifier.close)
            incoming = self._incoming = asyncio.Queue[AbstractIncomingMessage | None]()
            self._unacknowledged, self._is_leaving = 0, False
            self._channel.close_callbacks.add(lambda *_: incoming.put_nowait(None))
            await self._consume(watch)
            self.announce_ready()
            self.signals.emit("consuming")
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(self._keep(watch))
                await self._post_all(notifier)
                keeper.cancel()

    async def _consume(self, watch: Connection) -> None:
        arguments: dict[str, Any] = {}
        if self._is_stream:
            known = self._position = await call(watch, "position", self.bridge, self._label)
            arguments["x-stream-offset"] = "first" if known is None else known + 1

        with rabbit.broker_failures():
            queue = await self._channel.get_queue(self._from, ensure=False)
            await queue.consume(self._incoming.put, arguments=arguments or None)

    async def _post_all(self, notifier: Notifier) -> None:
        is_last = False
        while not is_last:
            gathered = [await self._incoming.get()]
            while len(gathered) < self._max_batch and not self._incoming.empty():
                gathered.append(self._incoming.get_nowait())
            is_last = None in gathered
            if is_last:
                if self.stopping.is_set():
                    return
                if not self._is_leaving:
                    raise BrokerUnavailable("the channel to RabbitMQ was closed")
                gathered = gathered[: gathered.index(None)]
                if not gathered:
                    return
            messages = cast("list[AbstractIncomingMessage]", gathered)
            self._unacknowledged = len(messages)
            await self._post(messages)
            with rabbit.broker_failures():
                # One channel, in order: one acknowledgement for all up to the last.
                await messages[-1].ack(multiple=True)
            self._unacknowledged = 0
            self.succeed()
            notifier.announce(self.queue)
            self.signals.emit("acknowledged", len(messages))

    async def _post(self, messages: list[AbstractIncomingMessage]) -> None:
        """Post messages, each once; when this returns they are durable, or kept as refused."""
        try:
            await self._post_batch(messages)
        except UNEXPECTED:
            for message in messages:
                try:
                    await self._post_batch([message])
                except UNEXPECTED as wrong:
                    await self._post_batch([message], problem=describe_failure(wrong))

    async def _post_batch(
        self, messages: list[AbstractIncomingMessage], *, problem: str | None = None
    ) -> None:
        """Post in one transaction; with a problem, keep all messages as refused instead."""
        now = datetime.now(UTC)
        arrived = [arrive(message, self._payload, now) for message in messages]
        problems = {
            place: each.problem or problem or ""
            for place, each in enumerate(arrived)
            if each.problem or problem
        }
        good = [place for place in range(len(arrived)) if place not in problems]
        fields = ("id", "data", "headers", "properties", "expires", "delayed")
        arrays = ([getattr(arrived[place], field) for place in good] for field in fields)
        batch = Batch(None, len(good), 0, [], *arrays)
        position = rabbit.stream_offset(messages[-1])
        async with self._target.transaction():
            delivery = await receive(self._target, self.bridge, self._label, batch, position)
            for place, error in zip(delivery.refused, delivery.errors, strict=True):
                problems[good[place - 1]] = error
            for place, why in problems.items():
                message_id = readable(messages[place].message_id or "") or None
                facts = readable(why), readable(arrived[place].headers), messages[place].body
                await call(self._target, "refuse", self.bridge, self._label, message_id, *facts)
        self._position = position
        self.delivered += delivery.posted
        self.dropped += delivery.dropped
        self.refused += len(problems)

    async def _keep(self, watch: Connection) -> None:
        """Follow the state of the bridge, and record how many messages wait at the broker."""
        loop = asyncio.get_running_loop()
        noted_at = loop.time() - NOTE_SECONDS
        quiet_checks = 0
        while True:
            state = await self.read_state(watch)
            if state in ("paused", "drained"):
                self._is_leaving = True
                self._incoming.put_nowait(None)
                self.signals.emit("leaving")
                return
            is_busy = self._unacknowledged or not self._incoming.empty()
            quiet_checks = 0 if is_busy else quiet_checks + 1
            is_quiet = quiet_checks >= QUIET_CHECKS
            if is_quiet:
                self.succeed()
            if (state == "draining" and is_quiet) or loop.time() - noted_at >= NOTE_SECONDS:
                waiting = await self._waiting()
                await call(watch, "note_waiting", self.bridge, self._label, waiting)
                quiet_checks = 0
                if state == "draining" and is_quiet and waiting == 0:
                    await call(watch, "set_state", self.bridge, "drained")
                    continue
                keep = self.settings.keep
                await call(watch, "settle", self.bridge, self._label, [], [], keep)
                noted_at = loop.time()
            await asyncio.sleep(STATE_SECONDS)

    async def _waiting(self) -> int:
        here = self._unacknowledged + self._incoming.qsize()
        if not self._is_stream:
            return here + await rabbit.ready_messages(self._channel, self._from)
        end = await rabbit.end_of_stream(self._broker, self._from)
        if end is None:
            return here
        return max(here, end - (-1 if self._position is None else self._position))
