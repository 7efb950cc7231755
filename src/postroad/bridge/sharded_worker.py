"""`ShardedWorker`: consumes a logical queue from all of its databases.

One worker runs per shard that is active or draining. The list is read once a second: a shard that
is added gets its worker, one that is drained loses it. A draining shard that is empty becomes
drained.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from postroad.bridge.addresses import Addresses
from postroad.bridge.errors import BridgeError
from postroad.bridge.shards import load_shards, settle_shards
from postroad.bus import AsyncWorker, WorkerSettings
from postroad.bus.reconnect import SURVIVABLE
from postroad.service import Service

logger = logging.getLogger(__name__)

LOOK_DEFAULT = timedelta(seconds=1)


class ShardedWorker(Service):
    """Runs the same handlers on all shards; `equip` registers them with each shard's worker."""

    def __init__(
        self,
        addresses: Addresses,
        logical: str,
        equip: Callable[[AsyncWorker], None],
        settings: WorkerSettings | None = None,
        look: timedelta = LOOK_DEFAULT,
    ) -> None:
        super().__init__(f"shards of {logical}")
        self.logical = logical
        self._addresses = addresses
        self._equip = equip
        self._settings = settings
        self._look_seconds = look.total_seconds()
        self._workers: dict[str, AsyncWorker] = {}

    @property
    def shards(self) -> list[str]:
        """The databases that have a worker at present."""
        return sorted(self._workers)

    async def run(self) -> None:
        """Run the workers until stopped."""
        try:
            while not self.stopping.is_set():
                try:
                    await settle_shards(self._addresses, self.logical)
                    await self._reconcile()
                except (*SURVIVABLE, BridgeError) as failure:
                    # The running workers go on; the list is read again later.
                    logger.warning("shards_not_read", extra={"reason": str(failure).strip()})
                self.announce_ready()
                await self.pause(self._look_seconds)
        finally:
            await asyncio.gather(*(self._end(database) for database in list(self._workers)))

    async def _reconcile(self) -> None:
        shards = await load_shards(self._addresses, self.logical)
        wanted = {shard.database for shard in shards if shard.state != "drained"}
        for database in list(self._workers):
            if database not in wanted or not self._workers[database].is_running:
                await self._end(database)
        for database in sorted(wanted - set(self._workers)):
            worker = AsyncWorker(self._addresses.database(database), self._settings)
            self._equip(worker)
            await worker.start()
            self._workers[database] = worker
            self.signals.emit("joined", database)

    async def _end(self, database: str) -> None:
        worker = self._workers.pop(database)
        try:
            await worker.stop()
        except Exception:  # noqa: BLE001 - the worker has logged it; a new one is started
            logger.warning("shard_worker_failed", extra={"database": database})
        self.signals.emit("left", database)
