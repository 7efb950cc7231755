"""`ShardedQueue` and `ShardedWorker`: one logical queue over several independent databases.

The settings name the databases and their weights (`bridge.shards`). A message goes to the shard of
its group, so that the group keeps its order; one without a group goes to any shard. A shard of
weight 0 gets no new messages but is still consumed. Posts to an unavailable shard fail; the other
shards are not affected.

This is consistent hashing and nothing more: no list that clients share, no transaction over two
shards, no rebalancing. After a change of the weights some groups move, and their messages posted
before and after the move may be processed at the same time.
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Self

from postroad.backoff import Backoff
from postroad.bridge.addresses import Addresses
from postroad.bridge.errors import NoShard
from postroad.bus import AsyncBus, AsyncWorker, WorkerSettings
from postroad.bus.hstore import Hstore
from postroad.bus.payload import Payload
from postroad.service import Service

logger = logging.getLogger(__name__)

POINTS_PER_WEIGHT = 160


class HashRing:
    """Consistent hashing: which shard a key belongs to.

    Each shard has points on a circle, in proportion to its weight; a key belongs to the shard of
    the next point. A new shard takes keys from all others in proportion, the keys of a removed one
    are spread over all others, and every other key stays where it was.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        points = sorted(
            (_place(f"{name}/{number}"), name)
            for name, weight in weights.items()
            for number in range(POINTS_PER_WEIGHT * weight)
        )
        self._places = [place for place, _ in points]
        self._names = [name for _, name in points]

    def find(self, key: str) -> str:
        """Return the shard of a key; the ring must not be empty."""
        return self._names[bisect.bisect_right(self._places, _place(key)) % len(self._names)]


def _place(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _weights(addresses: Addresses, logical: str) -> Mapping[str, int]:
    weights = addresses.shards.get(logical)
    if not weights:
        raise NoShard(
            f"{logical} has no shards",
            hint=f"name its databases in the settings, with a weight each: bridge.shards.{logical}",
        )
    return weights


class ShardedQueue:
    """A logical queue to post to; an async context manager. Raises NoShard, AddressUnknown."""

    def __init__(self, addresses: Addresses, logical: str) -> None:
        self.logical = logical
        weights = _weights(addresses, logical)
        if not any(weights.values()):
            raise NoShard(
                f"no shard of {logical} takes posts",
                hint=f"set the weight of one or more above 0: bridge.shards.{logical}",
            )
        self._ring = HashRing(weights)
        self._buses = {name: AsyncBus(addresses.database(name)) for name in weights}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to all shards."""
        for bus in self._buses.values():
            await bus.close()

    async def install(self, payload: Payload = "hstore") -> None:
        """Create the queue in every shard that does not have it. Repeatable."""
        for bus in self._buses.values():
            if all(each.queue != self.logical for each in await bus.queues()):
                await bus.create_queue(self.logical, payload=payload)

    def shard_of(self, key: str) -> str:
        """Return the shard of a group."""
        return self._ring.find(key)

    async def post(
        self,
        data: object,
        headers: Hstore | None = None,
        properties: Hstore | None = None,
        delayed_until: datetime | None = None,
        expires: datetime | None = None,
    ) -> str:
        """Post one message to the shard of its group and return its iid."""
        bus = self._buses[self._shard_for(headers)]
        return await bus.post(self.logical, data, headers, properties, delayed_until, expires)

    async def post_many(
        self, data: Sequence[object], headers: Sequence[Hstore] | None = None
    ) -> list[str]:
        """Post many messages; for each shard, all or none. Returns the iids in order."""
        parts: dict[str, list[int]] = {}
        for place in range(len(data)):
            shard = self._shard_for(headers[place] if headers else None)
            parts.setdefault(shard, []).append(place)
        iids = [""] * len(data)
        for shard, places in parts.items():
            chosen = [headers[place] for place in places] if headers else None
            posted = await self._buses[shard].post_many(
                self.logical, [data[place] for place in places], chosen
            )
            for place, iid in zip(places, posted, strict=True):
                iids[place] = iid
        return iids

    def _shard_for(self, headers: Hstore | None) -> str:
        return self.shard_of((headers or {}).get("group") or f"{random.getrandbits(64):x}")


class ShardedWorker(Service):
    """Runs the same handlers on all shards; `equip` registers them with each shard's worker.

    It fails with the error of a worker that cannot be started. A worker that fails later is
    replaced, so that the other shards are not affected; a worker waits while its database is
    unavailable. Raises NoShard, AddressUnknown.
    """

    def __init__(
        self,
        addresses: Addresses,
        logical: str,
        equip: Callable[[AsyncWorker], None],
        settings: WorkerSettings | None = None,
    ) -> None:
        super().__init__(f"shards of {logical}")
        self._equip = equip
        self._settings = settings
        names = _weights(addresses, logical)
        self._workers = {name: self._make(addresses.database(name)) for name in names}
        self._addresses = addresses

    def _make(self, dsn: str) -> AsyncWorker:
        worker = AsyncWorker(dsn, self._settings)
        self._equip(worker)
        return worker

    def request_stop(self) -> None:
        """Ask all workers to stop, so that they drain at the same time."""
        super().request_stop()
        for worker in self._workers.values():
            worker.request_stop()

    async def run(self) -> None:
        """Run the workers until stopped."""
        self.announce_ready()
        try:
            await asyncio.gather(*(self._serve(name) for name in self._workers))
        finally:
            self._supervises = list(self._workers.values())
            await self.stop_supervised()

    async def _serve(self, name: str) -> None:
        """Run the worker of a shard, and another one when it has failed."""
        backoff, was_ready = Backoff(), False
        while True:
            worker = self._workers[name]
            try:
                await worker.start()
                await worker.ready()
                was_ready = True
                await worker.join()
            except Exception as error:  # noqa: BLE001 - one shard must not stop the others
                if not was_ready:
                    self.fail(error)
                logger.warning("shard_failed", extra={"shard": name, "reason": str(error).strip()})
            if await self.pause(backoff.next_seconds()):
                return
            self._workers[name] = self._make(self._addresses.database(name))
