"""Watchers: disks that are nearly full, a clock that jumps, pauses that were forgotten.

Any number of processes may run them: the keys of alerts about a machine contain its host name.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from postroad.alerts.reporting import Severity
from postroad.postgres.calls import Connection, call, value
from postroad.postgres.connected_service import ConnectedService

WATCH_INTERVAL_DEFAULT = timedelta(seconds=30)
CLOCK_JUMP_DEFAULT = timedelta(seconds=5)
CLOCK_CALM_DEFAULT = timedelta(minutes=10)
LEAST_FREE_PERCENT_DEFAULT = 10.0
PAUSE_LIMIT_DEFAULT = timedelta(hours=1)
# Raises an alert for each long pause without one, and clears those of ended pauses.
_PAUSES = """
with paused as (
  select distinct on (alert) * from (
    select concat_ws('/', 'bus/paused', queue, case when not is_queue_paused then consumer end)
      as alert, * from mbus.consumers where paused_at is not null) p),
open as (
  select key from alerts.alert_list where cleared_at is null and starts_with(key, 'bus/paused/'))
select alerts.raise(alert, 'bus', 'warning',
  concat(substr(alert, 12), ' has been paused since ', date_trunc('second', paused_at)),
  concat('Paused by ', paused_by, ': ' || pause_reason, '. Resume it: postroad bus resume ',
         queue, case when not is_queue_paused then ' --consumer ' || consumer end))
from paused where paused_at < mbus.now() - %s and alert not in (select key from open)
union all
select alerts.clear(key) from open where key not in (select alert from paused)"""
# Hysteresis: the free space that clears an alert, as a factor of the limit.
_CLEAR_FACTOR = 1.1


class _Watcher(ConnectedService):
    """Checks at an interval and reports."""

    def __init__(self, name: str, dsn: str, interval: timedelta) -> None:
        super().__init__(name)
        self._dsn = dsn
        self._interval = interval
        self._host = socket.gethostname()
        # The last reports by key; unknown at the start, so that an old alert is cleared.
        self._reported: dict[str, Severity | None] = {}

    async def check(self, connection: Connection) -> None:
        """Check once and report. Written by the subclass."""
        raise NotImplementedError

    async def run(self) -> None:
        """Check until stopped."""
        await self.repeat(self._check, self._dsn, event="watcher_interrupted")

    async def _check(self, connection: Connection) -> None:
        await self.check(connection)
        self.announce_ready()
        self.signals.emit("checked")
        await self.pause(self._interval.total_seconds())

    async def _report(
        self, connection: Connection, key: str, severity: Severity | None, title: str, text: str
    ) -> None:
        """Raise an alert of this severity, or clear it without one, if that is a change."""
        if key in self._reported and self._reported[key] == severity:
            return
        if severity is None:
            await call(connection, "alerts.clear", key)
        else:
            await call(connection, "alerts.raise", key, "alerts", severity, title, text)
        self._reported[key] = severity


class DiskWatcher(_Watcher):
    """Reports folders whose disk has less free space than it should: `disk/<host>/<folder>`."""

    def __init__(
        self,
        dsn: str,
        folders: Iterable[Path],
        *,
        least_free_percent: float = LEAST_FREE_PERCENT_DEFAULT,
        interval: timedelta = WATCH_INTERVAL_DEFAULT,
        usage: Callable[[Path], Any] = shutil.disk_usage,
    ) -> None:
        super().__init__("disk watcher", dsn, interval)
        self._folders = tuple(folders)
        self._least_free_percent = least_free_percent
        self._usage = usage

    async def check(self, connection: Connection) -> None:
        """Report the state of each folder."""
        for folder in self._folders:
            key = f"disk/{self._host}/{folder}"[:200]
            try:
                usage = await asyncio.to_thread(self._usage, folder)
            except OSError as failure:
                state: Severity | None = "error"
                title = f"the folder {folder} cannot be read"
                text = f"{failure.strerror or failure} on {self._host}"
            else:
                percent = 100.0 * usage.free / usage.total if usage.total else 0.0
                state = self._state(key, percent)
                title = f"the disk of {folder} is nearly full: {percent:.1f} % free"
                text = (
                    f"{usage.free:,} of {usage.total:,} bytes are free on {self._host}.\n"
                    "Free some space. Until then writes fail, and messages stay with their senders."
                )
            await self._report(connection, key, state, title, text)

    def _state(self, key: str, percent: float) -> Severity | None:
        limit = self._least_free_percent
        if percent < limit / 2:
            return "critical"
        was_full = self._reported.get(key) is not None
        return "error" if percent < limit * (_CLEAR_FACTOR if was_full else 1.0) else None


def _boot_seconds() -> float:
    # Unlike time.monotonic it continues while the machine sleeps, so waking up is no jump.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockWatcher(_Watcher):
    """Reports a clock that jumps (`clock/jump/<host>`) or differs from the database's.

    A jump is cleared when the clock has been stable for some time, a difference
    (`clock/skew/<host>`) when it has ended.
    """

    def __init__(
        self,
        dsn: str,
        *,
        jump: timedelta = CLOCK_JUMP_DEFAULT,
        calm: timedelta = CLOCK_CALM_DEFAULT,
        interval: timedelta = WATCH_INTERVAL_DEFAULT,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = _boot_seconds,
    ) -> None:
        super().__init__("clock watcher", dsn, interval)
        self._jump_seconds, self._calm_seconds = jump.total_seconds(), calm.total_seconds()
        self._wall, self._steady = wall, steady
        self._difference: float | None = None
        # Whether an alert may be open; true at the start, because a former watcher may have died.
        self._jumped_at: float | None = steady()

    async def check(self, connection: Connection) -> None:
        """Compare the clocks with each other and with their previous values."""
        await self._check_jump(connection)
        await self._check_skew(connection)

    async def _check_jump(self, connection: Connection) -> None:
        steady = self._steady()
        difference = self._wall() - steady
        before, self._difference = self._difference, difference
        key = f"clock/jump/{self._host}"
        if before is not None and abs(difference - before) > self._jump_seconds:
            self._jumped_at = steady
            title = f"the clock of {self._host} jumped by {difference - before:+,.0f} s"
            text = "Timeouts do not depend on it, displayed times do: check the time source."
            await call(connection, "alerts.raise", key, "alerts", "warning", title, text)
        elif self._jumped_at is not None and steady - self._jumped_at >= self._calm_seconds:
            await call(connection, "alerts.clear", key)
            self._jumped_at = None

    async def _check_skew(self, connection: Connection) -> None:
        asked = self._steady()
        there: datetime = await value(connection, "select clock_timestamp()")
        answered = self._steady()
        skew = self._wall() - there.timestamp()
        # The clocks are read at different times, at most the duration of the query apart.
        is_skewed = abs(skew) > self._jump_seconds + (answered - asked)
        key = f"clock/skew/{self._host}"
        title = f"the clocks of {self._host} and the database differ by {skew:+,.0f} s"
        text = "Synchronise both with the same time server."
        await self._report(connection, key, "warning" if is_skewed else None, title, text)


class PauseWatcher(_Watcher):
    """Reports consumers and queues of the bus that have been paused for long: `bus/paused/…`."""

    def __init__(
        self,
        dsn: str,
        *,
        limit: timedelta = PAUSE_LIMIT_DEFAULT,
        interval: timedelta = WATCH_INTERVAL_DEFAULT,
    ) -> None:
        super().__init__("pause watcher", dsn, interval)
        self._limit = limit

    async def check(self, connection: Connection) -> None:
        """Report pauses that became too long, and those that have ended."""
        await connection.execute(_PAUSES, (self._limit,))
