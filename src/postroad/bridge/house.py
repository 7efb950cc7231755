"""`BridgeHouse`: runs every bridge of this house, and watches their lag.

The register and the settings are looked at every other second: a bridge that was added is started,
one that was removed is stopped. Several houses may run the same bridges: of each one works and
the others stand by.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

import psycopg

from postroad.bridge.addresses import Addresses
from postroad.bridge.ends import speaking
from postroad.bridge.errors import BridgeError
from postroad.bridge.failures import sentence
from postroad.bridge.lag import LagWatch
from postroad.bridge.operations import add
from postroad.bridge.register import Bridge, Carrier, carrier, load, pump_settings
from postroad.bridge.status import BridgeStatus, status
from postroad.bus.reconnect import SURVIVABLE
from postroad.service import Service
from postroad.settings import BridgeSettings

__all__ = ["BridgeHouse"]

logger = logging.getLogger(__name__)

LOOK_DEFAULT = timedelta(seconds=2)
WATCH_DEFAULT = timedelta(seconds=5)


class BridgeHouse(Service):
    """Keeps the bridges of a house running."""

    def __init__(
        self,
        addresses: Addresses,
        settings: BridgeSettings,
        *,
        only: Sequence[str] = (),
        look: timedelta = LOOK_DEFAULT,
        watch: timedelta = WATCH_DEFAULT,
    ) -> None:
        super().__init__("bridges")
        self._addresses = addresses
        self._settings = settings
        self._only = frozenset(only)
        self._look_seconds = look.total_seconds()
        self._watch_seconds = watch.total_seconds()
        self._running: dict[str, tuple[Bridge, Carrier]] = {}
        self._undefined = dict(settings.bridges)
        self._watches: dict[str, LagWatch] = {}
        self.statuses: list[BridgeStatus] = []

    @property
    def carriers(self) -> dict[str, Carrier]:
        """The services of the bridges, by name."""
        return {name: service for name, (_, service) in self._running.items()}

    async def run(self) -> None:
        """Run the bridges until stopped."""
        watching = asyncio.create_task(self._watch())
        try:
            while not self.stopping.is_set():
                try:
                    await self._define()
                    await self._reconcile()
                except (*SURVIVABLE, BridgeError) as failure:
                    logger.warning("bridges_not_read", extra={"reason": sentence(failure)})
                self.announce_ready()
                await self.pause(self._look_seconds)
        finally:
            watching.cancel()
            await asyncio.gather(*(self._end(name) for name in list(self._running)))

    async def _define(self) -> None:
        """Open the bridges that the settings describe; what does not work is tried again."""
        for name, definition in list(self._undefined.items()):
            try:
                await add(self._addresses, definition, name)
            except (*SURVIVABLE, BridgeError) as failure:
                extra = {"bridge": name, "reason": sentence(failure)}
                logger.warning("bridge_not_opened", extra=extra)
            else:
                del self._undefined[name]

    async def _reconcile(self) -> None:
        bridges = {bridge.name: bridge for bridge in await load(self._addresses)}
        if self._only:
            bridges = {name: each for name, each in bridges.items() if name in self._only}
        for name, (known, service) in list(self._running.items()):
            if bridges.get(name) != known or not service.is_running:
                await self._end(name)
        for name in sorted(bridges.keys() - self._running.keys()):
            try:
                service = carrier(bridges[name], self._addresses, pump_settings(self._settings))
            except BridgeError as failure:
                extra = {"bridge": name, "reason": sentence(failure)}
                logger.warning("bridge_not_started", extra=extra)
                continue
            await service.start()
            self._running[name] = bridges[name], service
            self.signals.emit("started", name)

    async def _end(self, name: str) -> None:
        _, service = self._running.pop(name)
        try:
            await service.stop()
        except Exception:  # noqa: BLE001 - it has logged why; the next look starts another
            logger.warning("bridge_ended", extra={"bridge": name})
        self.signals.emit("stopped", name)

    async def _watch(self) -> None:
        while True:
            try:
                self.statuses = await status(self._addresses)
                for each in self.statuses:
                    await self._judge(each)
            except (*SURVIVABLE, BridgeError) as failure:
                logger.warning("lag_not_seen", extra={"reason": sentence(failure)})
            await asyncio.sleep(self._watch_seconds)

    async def _judge(self, each: BridgeStatus) -> None:
        if each.lag is None or each.state == "paused":
            return
        watch = self._watches.setdefault(each.name, LagWatch(self._settings.lag_alert))
        verdict = watch.look(asyncio.get_running_loop().time(), each.lag, each.lag_age)
        if verdict is None:
            return
        text = (
            f"{each.lag} messages wait to cross from {each.queue} to {each.queue_at_target}, the"
            f" oldest for {each.lag_age}. {each.problem or 'The bridge works, but too slowly.'}"
        )
        logger.warning(
            "bridge_lags" if verdict else "bridge_caught_up",
            extra={"bridge": each.name, "lag": each.lag},
        )
        try:
            async with speaking(self._addresses.home) as connection:
                await connection.execute(
                    "select bridge.report_lag(%s, %s, %s)", (each.name, verdict, text)
                )
        except psycopg.Error as failure:
            # Told in the log already; the next look tries again.
            watch.is_lagging = not verdict
            logger.warning("lag_not_reported", extra={"reason": sentence(failure)})
        self.signals.emit("lag", (each.name, verdict))
