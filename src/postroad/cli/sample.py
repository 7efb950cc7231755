"""Sample partners of `postroad up`: one posts orders, and a worker with two consumers handles them.

Orders of random sizes go to the queue `sample_orders`. Its consumer `default` gets all of them and
fails to bill a few; `large` gets only those that match its selector. The worker is a process of
its own, so that it can be killed.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Sequence
from datetime import timedelta

import psycopg

from postroad.bus import AsyncBus, AsyncWorker, ConsumerExists, Message, Park
from postroad.bus.reconnect import SURVIVABLE
from postroad.cli.command_service import CommandService
from postroad.cli.parts import PartContext
from postroad.service import Service

logger = logging.getLogger(__name__)

QUEUE = "sample_orders"
BATCH_INTERVAL_DEFAULT = timedelta(milliseconds=250)
RATE_DEFAULT = 20.0
# One in so many orders names an unknown customer.
UNKNOWN_ONE_IN = 500
CITIES = ("Tver", "Kazan", "Perm", "Omsk", "Tula", "Pskov")


class SampleOrders(Service):
    """Posts at a steady rate, and continues when the database is available again."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("sample orders")
        self._dsn = context.dsn
        rate_per_second = float(context.wishes.get("rate") or RATE_DEFAULT)
        self._batch = max(1, round(rate_per_second * BATCH_INTERVAL_DEFAULT.total_seconds()))
        self._pause_seconds = self._batch / rate_per_second

    async def run(self) -> None:
        """Post until stopped."""
        async with AsyncBus(self._dsn) as bus:
            await _create_queue(bus)
            self.announce_ready()
            await self._post_all(bus)

    async def _post_all(self, bus: AsyncBus) -> None:
        number = 0
        while not await self.pause(self._pause_seconds):
            made = [_order(number + index) for index in range(self._batch)]
            try:
                await bus.post_many(
                    QUEUE, made, properties=[{"SIZE": str(one["size"])} for one in made]
                )
                number += self._batch
            except SURVIVABLE as failure:
                logger.warning("sample_not_posted", extra={"reason": str(failure).strip()})


class SampleBilling(Service):
    """Bills the orders."""

    def __init__(self, dsn: str) -> None:
        super().__init__("sample billing")
        self._dsn = dsn

    async def run(self) -> None:
        """Consume until stopped."""
        async with AsyncBus(self._dsn) as bus:
            await _create_queue(bus)
        worker = AsyncWorker(self._dsn)
        _serve(worker)
        async with worker:
            self.announce_ready()
            await worker.join_or(self.stopping)


def billing(context: PartContext) -> Service:
    """Make the worker: `up` runs it as a process, which executes `postroad serve`."""
    if context.mounts is not None:
        return CommandService("sample billing", context, ["serve", "sample-billing"])
    return SampleBilling(context.dsn)


class SampleListener(Service):
    """Consumes the events of the components, as an application would."""

    def __init__(self, dsn: str, queues: Sequence[str]) -> None:
        super().__init__("sample listener")
        self._dsn = dsn
        self._queues = queues

    async def run(self) -> None:
        """Listen until stopped."""
        worker = AsyncWorker(self._dsn)

        async def handle(message: Message, connection: psycopg.AsyncConnection) -> None:
            del message, connection

        async with AsyncBus(self._dsn) as bus:
            present = {one.queue for one in await bus.queues()}
        for queue in self._queues:
            if queue in present:
                worker.handler(queue, prefetch=100)(handle)
        async with worker:
            self.announce_ready()
            await self.stopping.wait()


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


def _serve(worker: AsyncWorker) -> None:
    """Consume the sample queues with a worker."""

    @worker.handler(QUEUE, consumer="default", prefetch=100)
    async def bill(message: Message, connection: psycopg.AsyncConnection) -> None:
        # A real handler writes its own rows here, in the transaction that consumes.
        del connection
        if message.data["customer"] == "unknown":
            raise Park("no such customer: unknown")

    @worker.handler(QUEUE, consumer="large", prefetch=100)
    async def watch(message: Message, connection: psycopg.AsyncConnection) -> None:
        del connection
        logger.debug("sample_consumed", extra={"iid": message.iid})
