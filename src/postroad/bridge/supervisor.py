"""`BridgeSupervisor`: runs every registered bridge, and raises alerts about those that lag.

The register and the settings are read every two seconds: a bridge that was added is started, one
that was removed is stopped. Several processes may run the same bridges: each bridge is run by one
of them, and the others stand by.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from datetime import timedelta

import psycopg

from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import call, transact
from postroad.bridge.errors import BridgeError
from postroad.bridge.operations import add
from postroad.bridge.registry import Bridge, load, make_service
from postroad.bridge.service import BridgeService, PumpSettings, describe_failure
from postroad.bridge.status import BridgeStatus, status
from postroad.bus.reconnect import SURVIVABLE
from postroad.service import Service
from postroad.settings import BridgeSettings

logger = logging.getLogger(__name__)

RELOAD_INTERVAL_DEFAULT = timedelta(seconds=2)
WATCH_DEFAULT = timedelta(seconds=5)
LAG_WINDOW_SECONDS = 30.0


class LagWatch:
    """Decides when the lag of one bridge is an alert: when it is old and still growing.

    An old lag that shrinks belongs to a bridge that catches up; a recent lag that grows is a burst.
    The alert is cleared when the oldest waiting message is younger than half the limit.
    """

    def __init__(self, limit: timedelta, window_seconds: float = LAG_WINDOW_SECONDS) -> None:
        self._limit = limit.total_seconds()
        self._window = window_seconds
        self._samples: deque[tuple[float, int]] = deque()
        self._waiting_since: float | None = None
        self.is_lagging = False

    def check(self, now: float, lag: int, age: timedelta | None) -> bool | None:
        """Add a sample; return True to raise the alert, False to clear it, else None."""
        self._samples.append((now, lag))
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._window:
            self._samples.popleft()
        # Without an age from the source, the time since there was no lag is used.
        if lag == 0 or self._waiting_since is None:
            self._waiting_since = now
        seconds = age.total_seconds() if age is not None else now - self._waiting_since
        is_growing = lag > self._samples[0][1]
        if not self.is_lagging and lag > 0 and is_growing and seconds > self._limit:
            self.is_lagging = True
            return True
        if self.is_lagging and (lag == 0 or seconds < self._limit / 2):
            self.is_lagging = False
            return False
        return None


class BridgeSupervisor(Service):
    """Keeps the registered bridges running."""

    def __init__(
        self,
        addresses: Addresses,
        settings: BridgeSettings,
        *,
        only: Sequence[str] = (),
        reload_interval: timedelta = RELOAD_INTERVAL_DEFAULT,
        watch: timedelta = WATCH_DEFAULT,
    ) -> None:
        super().__init__("bridges")
        self._addresses = addresses
        self._settings = settings
        self._pump_settings = PumpSettings(
            batch_messages=settings.batch_messages,
            batch_bytes=settings.batch_bytes,
            connections=settings.connections,
            keep=settings.keep,
        )
        self._only = frozenset(only)
        self._reload_seconds = reload_interval.total_seconds()
        self._watch_seconds = watch.total_seconds()
        self.running: dict[str, tuple[Bridge, BridgeService]] = {}
        self._undefined = dict(settings.bridges)
        self._watches: dict[str, LagWatch] = {}
        self.statuses: list[BridgeStatus] = []

    async def run(self) -> None:
        """Run the bridges until stopped."""
        watching = asyncio.create_task(self._watch())
        try:
            while not self.stopping.is_set():
                try:
                    for name, definition in list(self._undefined.items()):
                        try:
                            await add(self._addresses, definition, name)
                        except (*SURVIVABLE, BridgeError) as failure:
                            # It is tried again in the next round.
                            _warn("bridge_not_opened", failure, name)
                        else:
                            del self._undefined[name]
                    await self._reconcile()
                except (*SURVIVABLE, BridgeError) as failure:
                    _warn("bridges_not_read", failure)
                self.announce_ready()
                await self.pause(self._reload_seconds)
        finally:
            watching.cancel()
            await asyncio.gather(*(self._end(name) for name in list(self.running)))

    async def _reconcile(self) -> None:
        bridges = {
            bridge.name: bridge
            for bridge in await load(self._addresses)
            if not self._only or bridge.name in self._only
        }
        for name, (known, service) in list(self.running.items()):
            if bridges.get(name) != known or not service.is_running:
                await self._end(name)
        for name in sorted(bridges.keys() - self.running.keys()):
            try:
                service = make_service(bridges[name], self._addresses, self._pump_settings)
            except BridgeError as failure:
                _warn("bridge_not_started", failure, name)
                continue
            await service.start()
            self.running[name] = bridges[name], service

    async def _end(self, name: str) -> None:
        _, service = self.running.pop(name)
        try:
            await service.stop()
        except Exception:  # noqa: BLE001 - the service has logged it; a new one is started
            logger.warning("bridge_ended", extra={"bridge": name})

    async def _watch(self) -> None:
        while True:
            try:
                self.statuses = await status(self._addresses)
                for each in self.statuses:
                    await self._check_lag(each)
            except (*SURVIVABLE, BridgeError) as failure:
                _warn("lag_not_seen", failure)
            await asyncio.sleep(self._watch_seconds)

    async def _check_lag(self, each: BridgeStatus) -> None:
        if each.lag is None or each.state == "paused":
            return
        watch = self._watches.setdefault(each.name, LagWatch(self._settings.lag_alert))
        is_lagging = watch.check(asyncio.get_running_loop().time(), each.lag, each.lag_age)
        if is_lagging is None:
            return
        text = (
            f"{each.lag} messages wait to cross from {each.queue} to {each.queue_at_target}, the"
            f" oldest for {each.lag_age}. {each.problem or 'The bridge works, but too slowly.'}"
        )
        event = "bridge_lags" if is_lagging else "bridge_caught_up"
        logger.warning(event, extra={"bridge": each.name, "lag": each.lag})
        try:
            async with transact(self._addresses.home) as connection:
                await call(connection, "report_lag", each.name, is_lagging, text)
        except psycopg.Error as failure:
            # Reported again after the next check.
            watch.is_lagging = not is_lagging
            _warn("lag_not_reported", failure)
        self.signals.emit("lag", (each.name, is_lagging))


def _warn(event: str, failure: BaseException, bridge: str | None = None) -> None:
    extra = {"bridge": bridge} if bridge else {}
    logger.warning(event, extra={**extra, "reason": describe_failure(failure)})
