"""A sample partner of `postroad up`: a branch office with its own database.

A bridge carries large orders to it, exactly once; it consumes them there.
"""

from __future__ import annotations

import logging

from postroad.bridge import operations
from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import call, transact
from postroad.bridge.errors import BridgeExists
from postroad.bus import AsyncBus
from postroad.bus.errors import QueueNotFound
from postroad.cli.coordination_databases import find_databases
from postroad.cli.parts import PartContext
from postroad.cli.sample import QUEUE, SampleListener
from postroad.errors import PostroadError
from postroad.service import Service
from postroad.settings import BridgeDefinition

logger = logging.getLogger(__name__)

BRIDGE = "branch"
PAUSE_SECONDS = 1.0


class SampleBranch(Service):
    """Creates the bridge as soon as there are orders, and consumes the arriving messages.

    It uses the Reader's database, which has a bus like any other.
    """

    def __init__(self, context: PartContext) -> None:
        super().__init__("sample branch")
        settings = context.application.settings
        self._addresses = Addresses.of(context.dsn, settings.bridge)
        self._dsn = find_databases(settings.coordination, context.dsn).reader

    async def run(self) -> None:
        """Consume until stopped."""
        async with AsyncBus(self._dsn) as bus:
            await bus.create_queue(QUEUE, payload="jsonb")
        async with SampleListener(self._dsn, [QUEUE]):
            self.announce_ready()
            await self._open_bridge()
            await self.stopping.wait()

    async def _open_bridge(self) -> None:
        selector = "(t.properties->'SIZE')='large'"
        wanted = BridgeDefinition(source="home", target=self._dsn, queue=QUEUE, selector=selector)
        while not self.stopping.is_set():
            try:
                await operations.add(self._addresses, wanted, BRIDGE)
            except QueueNotFound:
                # The partner that posts orders starts at the same time.
                await self.pause(PAUSE_SECONDS)
            except BridgeExists:
                # Moving the data folder has changed the branch's address. Both ends stay.
                async with transact(self._addresses.home) as connection:
                    await call(connection, "unregister", BRIDGE)
            except PostroadError as refused:
                # Optional: omitted if the address contains a password.
                logger.info("sample_bridge_refused", extra={"reason": str(refused)})
                return
            else:
                return
