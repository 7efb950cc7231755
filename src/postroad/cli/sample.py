"""Sample partners of `postroad up` that use the bus.

- Orders of random sizes go to the queue `sample_orders`. Its consumer `default` gets all of them
and fails to bill a few; `large` gets only those that match its selector. The worker is a separate
process, so that it can be killed.
- An agency books tours as sagas. A tour is a room, two flights after the room, and a transfer after
  each flight. One tour in six has no seat on the flight home and is rolled back; one in thirty has
  a room that cannot be cancelled, and is stuck until an operator retries it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import psycopg

from postroad.bus import AsyncBus, AsyncWorker, ConsumerExists, Message, Park, Saga
from postroad.bus.reconnect import SURVIVABLE
from postroad.cli.command_service import CommandService
from postroad.cli.parts import PartContext
from postroad.service import Service

logger = logging.getLogger(__name__)

QUEUE = "sample_orders"
BATCH_INTERVAL_DEFAULT = timedelta(milliseconds=250)
RATE_DEFAULT = 20.0
# One in this many orders names an unknown customer.
UNKNOWN_ONE_IN = 500
CITIES = ("Tver", "Kazan", "Perm", "Omsk", "Tula", "Pskov")

TOUR_PAUSE_SECONDS = 2.0
DEADLINE_DEFAULT = timedelta(minutes=10)
NO_SEAT_ONE_IN = 6
STUCK_ONE_IN = 30
# Each step takes some time, so that the graph can be watched.
WORK_SECONDS = 0.6
TOUR_ENDED = "tour_is_over"

STEPS: dict[str, tuple[str, str, list[str]]] = {
    "room": ("tour_rooms", "tour_cancel_rooms", []),
    "ticket_to": ("tour_tickets", "tour_cancel_tickets", ["room"]),
    "ticket_from": ("tour_tickets", "tour_cancel_tickets", ["room"]),
    "transfer_to": ("tour_transfers", "tour_cancel_transfers", ["ticket_to"]),
    "transfer_from": ("tour_transfers", "tour_cancel_transfers", ["ticket_from"]),
}


class _Sample(Service):
    """Continues when the database is available again."""

    def __init__(self, name: str, dsn: str) -> None:
        super().__init__(name)
        self._dsn = dsn

    async def _post(self, post: Callable[[], Awaitable[object]], pause: float, event: str) -> None:
        """Post at a steady rate until stopped."""
        while not await self.pause(pause):
            try:
                await post()
            except SURVIVABLE as failure:
                logger.warning(event, extra={"reason": str(failure).strip()})


class SampleOrders(_Sample):
    """Posts orders."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("sample orders", context.dsn)
        self._rate_per_second = float(context.wishes.get("rate") or RATE_DEFAULT)

    async def run(self) -> None:
        """Post until stopped."""
        count = max(1, round(self._rate_per_second * BATCH_INTERVAL_DEFAULT.total_seconds()))
        number = 0
        async with AsyncBus(self._dsn) as bus:
            await _create_queue(bus)
            self.announce_ready()

            async def post() -> None:
                nonlocal number
                made = [_order(number + index) for index in range(count)]
                sizes = [{"SIZE": str(one["size"])} for one in made]
                await bus.post_many(QUEUE, made, properties=sizes)
                number += count

            await self._post(post, count / self._rate_per_second, "sample_not_posted")


class SampleBilling(_Sample):
    """Bills the orders."""

    async def run(self) -> None:
        """Consume until stopped."""
        async with AsyncBus(self._dsn) as bus:
            await _create_queue(bus)
        worker = AsyncWorker(self._dsn)
        worker.handler(QUEUE, prefetch=100)(_bill)
        worker.handler(QUEUE, consumer="large", prefetch=100)(_ignore)
        async with worker:
            self.announce_ready()
            await worker.join_or(self.stopping)


def billing(context: PartContext) -> Service:
    """Create the worker: `up` runs it as a process, which executes `postroad serve`."""
    if context.mounts is not None:
        return CommandService("sample billing", context, ["serve", "sample-billing"])
    return SampleBilling("sample billing", context.dsn)


class SampleListener(_Sample):
    """Consumes the events of the components, as an application would."""

    def __init__(self, dsn: str, queues: Sequence[str]) -> None:
        super().__init__("sample listener", dsn)
        self._queues = queues

    async def run(self) -> None:
        """Listen until stopped."""
        worker = AsyncWorker(self._dsn)
        async with AsyncBus(self._dsn) as bus:
            present = {one.queue for one in await bus.queues()}
        for queue in present.intersection(self._queues):
            worker.handler(queue, prefetch=100)(_ignore)
        async with worker:
            self.announce_ready()
            await self.stopping.wait()


class SampleTours(_Sample):
    """Starts a tour every few seconds and does its steps."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("sample tours", context.dsn)

    async def run(self) -> None:
        """Book until stopped."""
        worker = AsyncWorker(self._dsn)
        worker.handler(TOUR_ENDED)(_ignore)
        async with AsyncBus(self._dsn) as bus:
            await bus.create_queue(TOUR_ENDED, payload="jsonb")
            for do, undo in sorted({(do, undo) for do, undo, _ in STEPS.values()}):
                for queue, handle in ((do, _book), (undo, _cancel)):
                    await bus.create_queue(queue, payload="jsonb")
                    worker.handler(queue)(handle)
            async with worker:
                self.announce_ready()
                await self._post(lambda: _tour().start(bus), TOUR_PAUSE_SECONDS, "tour_not_started")


async def _create_queue(bus: AsyncBus) -> None:
    await bus.create_queue(QUEUE, payload="jsonb")
    with contextlib.suppress(ConsumerExists):
        await bus.create_consumer(QUEUE, "large", "(t.properties->'SIZE')='large'")


def _order(number: int) -> dict[str, object]:
    (size,) = random.choices(("small", "large"), (9, 1))  # noqa: S311 - a sample
    is_known = random.randrange(UNKNOWN_ONE_IN) > 0  # noqa: S311
    return {
        "number": number,
        "size": size,
        "city": random.choice(CITIES),  # noqa: S311
        "customer": f"C{random.randrange(1000):04}" if is_known else "unknown",  # noqa: S311
    }


def _tour() -> Saga:
    number = random.randrange(10_000)  # noqa: S311 - a sample
    saga = Saga(
        "tour",
        data={
            "tour": number,
            "has_seat": number % NO_SEAT_ONE_IN > 0,
            "can_cancel": number % STUCK_ONE_IN > 0,
        },
        deadline=datetime.now(UTC) + DEADLINE_DEFAULT,
        on_completed=TOUR_ENDED,
        on_compensated=TOUR_ENDED,
    )
    for name, (do, undo, after) in STEPS.items():
        saga.step(name, do=do, undo=undo, after=after)
    return saga


# A real handler writes its own rows over the connection, in the transaction that consumes.
async def _bill(message: Message, _: psycopg.AsyncConnection) -> None:
    if message.data["customer"] == "unknown":
        raise Park("no such customer: unknown")


async def _book(message: Message, _: psycopg.AsyncConnection) -> None:
    await asyncio.sleep(WORK_SECONDS * random.random() * 2)  # noqa: S311 - the work itself
    if message.headers["step"] == "ticket_from" and not message.data["has_seat"]:
        raise Park("no seat on the flight home")


async def _cancel(message: Message, _: psycopg.AsyncConnection) -> None:
    await asyncio.sleep(WORK_SECONDS * random.random())  # noqa: S311
    if message.headers["step"] == "room" and not message.data["can_cancel"]:
        raise Park("the hotel does not answer")


async def _ignore(*_: object) -> None:
    """Consume a message without further effect."""
