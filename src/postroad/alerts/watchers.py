"""Watchers of the machine: disks that are nearly full, a clock that jumps.

Each is a service that any process may run; its keys hold the host's name, so several may.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import AsyncConnection

from postroad.alerts.reporting import Severity, clear_alert_async, raise_alert_async
from postroad.bus.reconnect import Backoff
from postroad.postgres.connections import connect_async
from postroad.postgres.errors import DatabaseUnavailable
from postroad.service import Service

logger = logging.getLogger(__name__)

WATCH_INTERVAL_DEFAULT = timedelta(seconds=30)
CLOCK_JUMP_DEFAULT = timedelta(seconds=5)
CLOCK_CALM_DEFAULT = timedelta(minutes=10)
LEAST_FREE_PERCENT_DEFAULT = 10.0
# A disk must be that much above the bar to count as well again, so that it does not flap.
_WELL_AGAIN = 1.1


class _Watcher(Service):
    """Looks every so often, on a connection that is opened anew whenever it breaks."""

    def __init__(self, name: str, dsn: str, interval: timedelta) -> None:
        super().__init__(name)
        self._dsn = dsn
        self._interval_seconds = interval.total_seconds()
        self._host = socket.gethostname()

    async def look(self, connection: AsyncConnection[Any]) -> None:
        """Look once and report. Written by the subclass."""
        raise NotImplementedError

    async def run(self) -> None:
        """Look until stopped."""
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                async with await connect_async(
                    self._dsn, application_name=f"postroad {self.name}", autocommit=True
                ) as connection:
                    while not self.stopping.is_set():
                        await self.look(connection)
                        backoff.reset()
                        self.announce_ready()
                        self.signals.emit("looked")
                        await self.pause(self._interval_seconds)
            except (psycopg.Error, DatabaseUnavailable, OSError) as failure:
                logger.warning("watcher_interrupted", extra={"reason": str(failure).strip()})
                await self.pause(backoff.next_seconds())


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
        # What was last said of a folder; unknown at the start, so that an old alert is cleared.
        self._said: dict[Path, Severity | None] = {}

    async def look(self, connection: AsyncConnection[Any]) -> None:
        """Report each folder whose state has changed."""
        for folder in self._folders:
            key = f"disk/{self._host}/{folder}"[:200]
            try:
                usage = await asyncio.to_thread(self._usage, folder)
            except OSError as failure:
                state: Severity | None = "error"
                title = f"the folder {folder} cannot be looked at"
                text = f"{failure.strerror or failure} on {self._host}"
            else:
                percent = 100.0 * usage.free / usage.total if usage.total else 0.0
                state = self._state(folder, percent)
                title = f"the disk of {folder} is nearly full: {percent:.1f} % free"
                text = (
                    f"{usage.free:,} of {usage.total:,} bytes are free on {self._host}.\n"
                    "Make room: what cannot be written is refused, and stays with its sender."
                )
            if folder in self._said and self._said[folder] == state:
                continue
            if state is None:
                await clear_alert_async(connection, key)
            else:
                await raise_alert_async(
                    connection, key, room="alerts", severity=state, title=title, text=text
                )
            self._said[folder] = state

    def _state(self, folder: Path, percent: float) -> Severity | None:
        bar = self._least_free_percent
        if percent < bar / 2:
            return "critical"
        was_full = self._said.get(folder) is not None
        return "error" if percent < bar * (_WELL_AGAIN if was_full else 1.0) else None


def _boot_seconds() -> float:
    # Unlike time.monotonic it goes on while the machine sleeps, so waking up is no jump.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockWatcher(_Watcher):
    """Reports a clock that jumps (`clock/jump/<host>`) or differs from the database's.

    A jump is an event: it is cleared when nothing jumped for a while. A difference
    (`clock/skew/<host>`) is cleared when it is gone.
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
        self._jump_seconds = jump.total_seconds()
        self._calm_seconds = calm.total_seconds()
        self._wall = wall
        self._steady = steady
        self._difference: float | None = None
        # Whether an alert may be open: yes at the start, because a former watcher may have died.
        self._jumped_at: float | None = steady()
        # What was last said; unknown at the start, so that an old alert is cleared.
        self._is_skewed: bool | None = None

    async def look(self, connection: AsyncConnection[Any]) -> None:
        """Compare the clocks with each other and with what they were."""
        await self._look_for_jump(connection)
        await self._look_for_skew(connection)

    async def _look_for_jump(self, connection: AsyncConnection[Any]) -> None:
        steady = self._steady()
        difference = self._wall() - steady
        before, self._difference = self._difference, difference
        key = f"clock/jump/{self._host}"
        if before is not None and abs(difference - before) > self._jump_seconds:
            self._jumped_at = steady
            by = difference - before
            await raise_alert_async(
                connection,
                key,
                room="alerts",
                severity="warning",
                title=f"the clock of {self._host} jumped by {by:+,.0f} s",
                text="Time-outs do not depend on it. Times that people read do: check its source.",
            )
        elif self._jumped_at is not None and steady - self._jumped_at >= self._calm_seconds:
            await clear_alert_async(connection, key)
            self._jumped_at = None

    async def _look_for_skew(self, connection: AsyncConnection[Any]) -> None:
        asked = self._steady()
        cursor = await connection.execute("select clock_timestamp()")
        row = await cursor.fetchone()
        assert row is not None  # noqa: S101 - a function call always gives one row
        answered = self._steady()
        here = datetime.fromtimestamp(self._wall(), UTC)
        skew = (here - row[0]).total_seconds()
        key = f"clock/skew/{self._host}"
        # What the question itself took is no difference.
        is_skewed = abs(skew) > self._jump_seconds + (answered - asked)
        if is_skewed is self._is_skewed:
            return
        if is_skewed:
            await raise_alert_async(
                connection,
                key,
                room="alerts",
                severity="warning",
                title=f"the clocks of {self._host} and the database differ by {skew:+,.0f} s",
                text="Let both follow the same time server.",
            )
        else:
            await clear_alert_async(connection, key)
        self._is_skewed = is_skewed
