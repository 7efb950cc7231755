"""The figures of every consumer: the last minutes in memory, and a week in the database."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg_pool import PoolTimeout

from postroad.bus import AsyncBus, BusError, ConsumerStatus
from postroad.clock import SYSTEM_CLOCK, Clock
from postroad.console.cache import Cache
from postroad.postgres.calls import Connection, Row, select
from postroad.service import Service, first_of

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 2.0
# The counted events of messages; all but the first belong to a consumer.
HAPPENS = ("posted", "consumed", "rejected", "died", "expired")
MAX_POINTS, MIN_POINTS, MAX_POINTS_OF_ALL = 450, 30, 90_000
# A queue and its consumer, or empty for the sums over all.
_Key = tuple[str | None, str | None]


# The length and the step of the charts of stored figures, by their names in addresses.
SPANS = {
    "hour": (timedelta(hours=1), timedelta(minutes=1)),
    "days": (timedelta(days=2), timedelta(minutes=15)),
    "week": (timedelta(days=7), timedelta(hours=2)),
}
# Later events are not stored yet.
STORED_AFTER = timedelta(minutes=2)


async def traffic(
    connection: Connection, span: str, queue: str | None, consumer: str | None
) -> list[Row]:
    """Return the figures for each step of a span; waiting and dead are None if unknown."""
    length, step = SPANS[span]
    now = datetime.now(UTC)
    found = await select(connection, "mbus.traffic", now - length, step, queue, consumer)
    by_time = {row["at"]: row for row in found}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first, last = (now - length - epoch) // step + 1, (now - STORED_AFTER - epoch) // step
    times = (epoch + number * step for number in range(first, last + 1))
    nothing: Row = {**dict.fromkeys(HAPPENS, 0), "waiting": None, "dead": None}
    return [by_time.get(at, {"at": at, **nothing}) for at in times]


async def latency(
    connection: Connection, span: str, queue: str | None, consumer: str | None
) -> list[Row]:
    """Return the quantiles of waits and handlers in each step of a span, at least each hour."""
    length, step = SPANS[span]
    hour = timedelta(hours=1)
    since = (datetime.now(UTC) - length).replace(minute=0, second=0, microsecond=0)
    return await select(connection, "mbus.latency", since, max(step, hour), queue, consumer)


def posted_per_second(found: Iterable[ConsumerStatus]) -> float:
    """Sum the posts of queues; every consumer of a queue reports the same posts."""
    by_queue: dict[str, float] = {}
    for one in found:
        by_queue[one.queue] = max(by_queue.get(one.queue, 0.0), one.posted_per_second or 0.0)
    return sum(by_queue.values())


class History(Service):
    """Figures of the bus over the lifetime of the process."""

    def __init__(self, bus: AsyncBus, cache: Cache, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__("history")
        self._bus = bus
        self._cache = cache
        self._clock = clock
        self._points: dict[_Key, deque[Row]] = {}
        self._last: Sequence[ConsumerStatus] | None = None

    async def run(self) -> None:
        """Record figures until stopped; an unavailable database leaves a gap."""
        self.announce_ready()
        while not self.stopping.is_set():
            # A read may wait long for the database; stopping the service does not wait for it.
            reading = asyncio.create_task(self.status())
            await first_of(reading, self.stopping)
            if not reading.done():
                reading.cancel()
                return
            try:
                self._add(reading.result())
            except (psycopg.Error, BusError, PoolTimeout, OSError) as failure:
                logger.debug("history_gap", extra={"reason": str(failure).strip()})
            await self.pause(INTERVAL_SECONDS)

    async def status(self) -> Sequence[ConsumerStatus]:
        """Return the figures of all consumers, shared by all pages. Read-only."""
        return await self._cache.get("bus.status", self._bus.status)

    def of(self, queue: str | None = None, consumer: str | None = None) -> Sequence[Row]:
        """Return the figures of a consumer, or the sums over all, the oldest first.

        The columns are those of `traffic`, with events per second, and `age_seconds`.
        """
        return list(self._points.get((queue, consumer), ()))

    def _add(self, found: Sequence[ConsumerStatus]) -> None:
        # Cached values are shared and may be older than the interval: each is added once.
        if found is self._last:
            return
        self._last = found
        now = self._clock.now()
        kept = min(MAX_POINTS, max(MIN_POINTS, MAX_POINTS_OF_ALL // max(len(found), 1)))
        by_key: dict[_Key, Sequence[ConsumerStatus]] = {
            (one.queue, one.consumer): [one] for one in found
        }
        by_key[None, None] = found
        for key, figures in by_key.items():
            points = self._points.setdefault(key, deque(maxlen=kept))
            ages = [one.oldest_age.total_seconds() for one in figures if one.oldest_age]
            row: Row = {"at": now, "age_seconds": max(ages, default=0.0)}
            row["waiting"] = sum(one.depth for one in figures)
            row["dead"] = sum(one.dmq for one in figures)
            for kind in HAPPENS[1:]:
                row[kind] = sum(getattr(one, f"{kind}_per_second") for one in figures)
            points.append({**row, "posted": posted_per_second(figures)})
        for gone in self._points.keys() - by_key:
            del self._points[gone]
