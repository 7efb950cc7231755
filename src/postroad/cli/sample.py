"""The sample partners of `postroad up`: somebody who posts and somebody who consumes.

Orders of random sizes go to the queue `sample_orders`. Its consumer `default` gets all of them,
`large` only those that its selector lets through.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter
from datetime import timedelta

import psycopg

from postroad.bus import AsyncBus, AsyncWorker, BusError, ConsumerExists, Message
from postroad.clock import SYSTEM_CLOCK, Clock
from postroad.postgres.errors import DatabaseUnavailable
from postroad.service import Service

__all__ = ["QUEUE", "Meter", "SampleProducer", "create_sample_queue", "serve_sample"]

logger = logging.getLogger(__name__)

QUEUE = "sample_orders"
BATCH_INTERVAL_DEFAULT = timedelta(milliseconds=100)


class Meter:
    """Counts what the sample partners did since the last look.

    The rates of `mbus.status` are means over samples ten seconds apart; eyes want this second.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.posted: Counter[str] = Counter()
        self.consumed: Counter[str] = Counter()
        self._clock = clock
        self._since = clock.monotonic()

    def rates(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Return posted and consumed per second for each consumer, and begin anew."""
        now = self._clock.monotonic()
        seconds = max(now - self._since, 0.001)
        found = {
            (QUEUE, consumer): (self.posted[consumer] / seconds, self.consumed[consumer] / seconds)
            for consumer in ("default", "large")
        }
        self.posted.clear()
        self.consumed.clear()
        self._since = now
        return found


async def create_sample_queue(bus: AsyncBus) -> None:
    """Create the queue and its consumers unless they are there."""
    await bus.create_queue(QUEUE, payload="jsonb")
    with contextlib.suppress(ConsumerExists):
        await bus.create_consumer(QUEUE, "large", "(t.properties->'SIZE')='large'")


def serve_sample(worker: AsyncWorker, meter: Meter) -> None:
    """Let a worker consume the samples."""

    def consume_for(consumer: str) -> None:
        @worker.handler(QUEUE, consumer=consumer, prefetch=100)
        async def consume(message: Message, connection: psycopg.AsyncConnection) -> None:
            # A real handler writes its own rows here, in the transaction that consumes.
            del connection
            meter.consumed[consumer] += 1
            logger.debug("sample_consumed", extra={"iid": message.iid})

    consume_for("default")
    consume_for("large")


class SampleProducer(Service):
    """Posts orders at a steady rate, and goes on when the database comes back."""

    def __init__(self, bus: AsyncBus, rate_per_second: float, meter: Meter) -> None:
        super().__init__("sample producer")
        self._bus = bus
        self._meter = meter
        self._batch = max(1, round(rate_per_second * BATCH_INTERVAL_DEFAULT.total_seconds()))
        self._pause_seconds = self._batch / rate_per_second

    async def run(self) -> None:
        """Post until stopped."""
        number = 0
        self.announce_ready()
        while not await self.pause(self._pause_seconds):
            sizes = random.choices(("small", "large"), (9, 1), k=self._batch)  # noqa: S311 - a sample
            try:
                await self._bus.post_many(
                    QUEUE,
                    [{"number": number + index, "size": size} for index, size in enumerate(sizes)],
                    properties=[{"SIZE": size} for size in sizes],
                )
                number += self._batch
                self._meter.posted.update(default=len(sizes), large=sizes.count("large"))
            except (psycopg.Error, BusError, DatabaseUnavailable, OSError) as failure:
                logger.warning("sample_not_posted", extra={"reason": str(failure).strip()})
