"""Celery beat on schedules of the bus: any number of beat processes may run.

The entries of `beat_schedule` are stored as schedules. The bus posts each run as a message, and
one of the beat processes takes it and sends the task in the same transaction, so exactly once.
"""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from celery.exceptions import ImproperlyConfigured
from celery.schedules import crontab, schedule
from psycopg_pool import ConnectionPool

from postroad.broker.address import database_of
from postroad.broker.link import Link
from postroad.broker.transaction import TransactionConnection
from postroad.bus import Bus
from postroad.bus.reconnect import SURVIVABLE

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
# A run that could not be sent is taken again after this.
AGAIN = timedelta(seconds=5)
FIELDS = {"minute": 60, "hour": 24, "day_of_month": 31, "month_of_year": 12, "day_of_week": 7}


class BeatScheduler(Scheduler):  # type: ignore[misc]  # Celery has no types
    """Sends a task for each run of a schedule; a run that was not sent is taken again."""

    _pool: ConnectionPool | None = None

    def setup_schedule(self) -> None:
        """Store the entries as schedules; remove those of entries that no longer exist."""
        super().setup_schedule()
        timings = {name: timing_of(entry) for name, entry in self.schedule.items()}
        dsn = database_of(self.app.conf.broker_url)
        main = re.sub("[^a-z0-9_]+", "_", (self.app.main or "celery").lower())[:20]
        self._queue = f"beat_{main}"
        link = Link(dsn, "beat")
        try:
            stored = "select schedule from mbus.schedules where queue = %s"
            found = {name for (name,) in link.run(stored, (self._queue,))}
        finally:
            link.close()
        self._pool = ConnectionPool(dsn, min_size=1, max_size=2, open=True)
        self._bus = Bus(self._pool)
        self._bus.create_queue(self._queue, payload="text")
        for name, (timing, zone) in timings.items():
            self._bus.schedule(f"{self._queue}.{name}", timing, self._queue, name, zone)
            found.discard(f"{self._queue}.{name}")
        for name in found:
            self._bus.unschedule(name)

    def tick(self, *_: Any, **__: Any) -> float:
        """Send the tasks whose runs are due; return the seconds until the next call."""
        try:
            # Also posts the runs that are due, as every worker does.
            self._bus.maintain()
            while self._send_next():
                pass
        except SURVIVABLE as failure:
            logger.warning("beat_interrupted", extra={"reason": str(failure).strip()})
        return POLL_SECONDS

    def _send_next(self) -> bool:
        assert self._pool is not None  # noqa: S101 - only schedulers that were set up are run
        with self._pool.connection() as connection:
            bus = self._bus.using(connection)
            messages = bus.consume(self._queue)
            for message in messages:
                try:
                    with connection.transaction():
                        self._send(message.data, TransactionConnection(connection).Producer())
                except SchedulingError as failure:
                    bus.give_back(message, delay=AGAIN, error=str(failure))
        return bool(messages)

    def _send(self, name: str, producer: Any) -> None:
        if name not in self.schedule:
            # A newer version of the application stored it, and its beat can send it.
            raise SchedulingError(f"this application has no entry {name}")
        self.apply_async(self.schedule[name], producer=producer, advance=False)

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.close()
        super().close()


def timing_of(entry: ScheduleEntry) -> tuple[str, str]:
    """Return the timing and the time zone of an entry. Raises ImproperlyConfigured."""
    planned = entry.schedule
    if isinstance(planned, crontab):
        values = {name: sorted(getattr(planned, name)) for name in FIELDS}
        fields = [
            "*" if len(values[name]) == size else ",".join(map(str, values[name]))
            for name, size in FIELDS.items()
        ]
        # Celery wants both to fit, cron one of them.
        if "*" in (fields[2], fields[4]):
            return " ".join(fields), str(planned.tz)
    elif type(planned) is schedule:
        return f"{planned.run_every.total_seconds()} seconds", "UTC"
    raise ImproperlyConfigured(
        f"the schedule of {entry.name} cannot be stored: use an interval, or a crontab that"
        " restricts the days of the month or the weekdays, not both"
    )
