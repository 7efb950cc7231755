"""Celery beat on schedules of the bus: any number of beat processes may run.

The entries of `beat_schedule` are stored as schedules. The bus posts each run as a message, and one
of the beat processes takes it and sends the task in the same transaction, so each run is sent
exactly once.
"""

from __future__ import annotations

import hashlib
import logging
import re
from contextlib import closing
from datetime import UTC, timedelta
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from celery.exceptions import ImproperlyConfigured
from celery.schedules import crontab, schedule
from psycopg import Connection
from psycopg_pool import ConnectionPool

from postroad.broker.address import database_of
from postroad.broker.link import Link
from postroad.broker.transaction import TransactionConnection
from postroad.bus import Bus, Message
from postroad.bus.reconnect import SURVIVABLE

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
CONNECT_SECONDS = 5.0
# The delay before a run that could not be sent is taken again.
AGAIN = timedelta(seconds=5)
FIELDS = {"minute": 60, "hour": 24, "day_of_month": 31, "month_of_year": 12, "day_of_week": 7}
IS_STORED = "select mbus.now() from mbus.schedules where schedule = %s"


class BeatScheduler(Scheduler):  # type: ignore[misc]  # Celery has no types
    """Sends a task for each run of a schedule; a run that was not sent is taken again."""

    _pool: ConnectionPool | None = None

    def setup_schedule(self) -> None:
        """Read the entries; they are stored at the first tick that reaches the database."""
        super().setup_schedule()
        self._timings = {name: timing_of(entry) for name, entry in self.schedule.items()}
        main = self.app.main or "celery"
        slug = re.sub("[^a-z0-9_]+", "_", main.lower())[:20]
        # The digest of the whole name, so that two applications never share a queue.
        self._queue = f"beat_{slug}_{hashlib.sha256(main.encode()).hexdigest()[:6]}"

    def tick(self, *_: Any, **__: Any) -> float:
        """Send the tasks whose runs are due; return the seconds until the next call."""
        try:
            pool = self._pool or self._store()
            # Also posts the runs that are due, as every worker does.
            self._bus.maintain()
            while self._send_next(pool):
                pass
        except SURVIVABLE as failure:
            logger.warning("beat interrupted: %s", str(failure).strip())
        return POLL_SECONDS

    def _store(self) -> ConnectionPool:
        """Store the entries as schedules; remove those of entries that no longer exist."""
        dsn = database_of(self.app.connection_for_write().hostname or "mbus:///")
        with closing(Link(dsn, "beat")) as link:
            stored = "select schedule from mbus.schedules where queue = %s"
            found = {name for (name,) in link.run(stored, (self._queue,))}
        pool = ConnectionPool(dsn, min_size=1, max_size=2, timeout=CONNECT_SECONDS, open=True)
        try:
            self._bus = Bus(pool)
            self._bus.create_queue(self._queue, payload="text")
            for name, (timing, zone) in self._timings.items():
                self._bus.schedule(self._schedule(name), timing, self._queue, name, zone)
            for name in found - {self._schedule(name) for name in self._timings}:
                self._bus.unschedule(name)
        except BaseException:
            pool.close()
            raise
        self._pool = pool
        return pool

    def _schedule(self, name: str) -> str:
        return f"{self._queue}.{name}"

    def _send_next(self, pool: ConnectionPool) -> bool:
        with pool.connection() as connection:
            bus = self._bus.using(connection)
            messages = bus.consume(self._queue)
            for message in messages:
                if (entry := self.schedule.get(message.data)) is None:
                    self._leave(connection, bus, message)
                    continue
                try:
                    with connection.transaction():
                        producer = TransactionConnection(connection).Producer()
                        self.apply_async(entry, producer=producer, advance=False)
                    logger.info("sending due task %s (%s)", entry.name, entry.task)
                except SchedulingError as failure:
                    logger.error("not sent, to be tried again: %s", failure)  # noqa: TRY400
                    bus.give_back(message, delay=AGAIN, error=str(failure))
        return bool(messages)

    def _leave(self, connection: Connection[Any], bus: Bus, message: Message) -> None:
        """Leave a run to the beat processes of another version of the application."""
        name = message.data
        found = connection.execute(IS_STORED, (self._schedule(name),)).fetchone()
        if found is None:
            logger.warning("dropped a run of %s, which is no entry any more", name)
        else:
            # Giving it back would count attempts.
            bus.post(self._queue, name, delayed_until=found[0] + AGAIN)

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.close()
        super().close()


def timing_of(entry: ScheduleEntry) -> tuple[str, str]:
    """Return the timing and the time zone of an entry. Raises ImproperlyConfigured."""
    planned = entry.schedule
    if type(planned) is crontab and planned.nowfun is None:
        fields = []
        for name, size in FIELDS.items():
            values = sorted(getattr(planned, name))
            fields.append("*" if len(values) == size else ",".join(map(str, values)))
        zone = getattr(planned.tz, "key", None) or getattr(planned.tz, "zone", None)
        if planned.tz is UTC:
            zone = "UTC"
        # Celery requires both to match, cron only one of them.
        if zone and "*" in (fields[2], fields[4]):
            return " ".join(fields), zone
    elif type(planned) is schedule and planned.nowfun is None and not planned.relative:
        seconds = planned.run_every.total_seconds()
        if seconds >= 1:
            return f"{seconds} seconds", "UTC"
    raise ImproperlyConfigured(
        f"the schedule of {entry.name} cannot be stored: use an interval of a second or more, or a"
        " crontab with a named time zone that restricts the days of the month or the weekdays, not"
        " both; nowfun, relative and subclasses have no counterpart"
    )
