"""`ShardedQueue`: posts to one logical queue that is spread over several databases.

A message goes to the shard of its group, so that the group keeps its order; one without a group
goes to any shard. Posts to a shard that is away fail; other shards are not affected. When a shard
is added or drained some groups move: messages posted before and after the move may then be
processed at the same time.
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from psycopg_pool import AsyncConnectionPool

from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import call
from postroad.bridge.errors import NoShard
from postroad.bridge.shards import Shard, load_shards
from postroad.bus import AsyncBus
from postroad.bus.hstore import Hstore
from postroad.bus.notifier import AsyncNotifier
from postroad.postgres.connections import open_async_pool

REFRESH_DEFAULT = timedelta(seconds=1)
# A shard may be drained between reading the list and posting, but not repeatedly.
TRIES = 5
POINTS_PER_WEIGHT = 160


class HashRing:
    """Consistent hashing: which shard a key belongs to.

    Each shard has points on a circle, in proportion to its weight; a key belongs to the shard of
    the next point. A new shard takes keys from all others in proportion, a removed one gives its
    keys to all others, and every other key stays where it was.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        points = sorted(
            (_place(f"{name}/{number}"), name)
            for name, weight in weights.items()
            for number in range(POINTS_PER_WEIGHT * weight)
        )
        self._places = [place for place, _ in points]
        self._names = [name for _, name in points]

    def __bool__(self) -> bool:
        return bool(self._names)

    def find(self, key: str) -> str:
        """Return the shard of a key; the ring must not be empty."""
        return self._names[bisect.bisect_right(self._places, _place(key)) % len(self._names)]


def _place(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


class ShardedQueue:
    """A logical queue to post to; an async context manager."""

    def __init__(
        self, addresses: Addresses, logical: str, refresh: timedelta = REFRESH_DEFAULT
    ) -> None:
        self.logical = logical
        self._addresses = addresses
        self._refresh_seconds = refresh.total_seconds()
        self._refreshed_at = -1e9
        self._refreshing = asyncio.Lock()
        self._shards: dict[str, Shard] = {}
        self._ring = HashRing({})
        self._pools: dict[str, AsyncConnectionPool[Any]] = {}
        self._notifiers: dict[str, AsyncNotifier] = {}

    async def __aenter__(self) -> Self:
        await self.refresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to all shards."""
        for notifier in self._notifiers.values():
            await notifier.close()
        for pool in self._pools.values():
            await pool.close()
        self._pools, self._notifiers = {}, {}

    def shard_of(self, key: str) -> str:
        """Return the shard of a group. Raises NoShard."""
        if not self._ring:
            raise NoShard(
                f"no shard of {self.logical} takes posts",
                hint=f"add one: postroad bridge shards add {self.logical} DATABASE",
            )
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
        key = _key(headers)

        async def one(bus: AsyncBus) -> str:
            return await bus.post(self.logical, data, headers, properties, delayed_until, expires)

        return str(await self._enter(key, one))

    async def post_many(
        self, data: Sequence[object], headers: Sequence[Hstore] | None = None
    ) -> list[str]:
        """Post many; those of one shard all or none. Returns the iids in order."""
        await self._keep_fresh()
        keys = [_key(headers[place] if headers else None) for place in range(len(data))]
        parts: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            parts.setdefault(self.shard_of(key), []).append(place)
        iids = [""] * len(data)
        for places in parts.values():

            async def several(bus: AsyncBus, places: list[int] = places) -> list[str]:
                chosen = [headers[place] for place in places] if headers else None
                return await bus.post_many(self.logical, [data[place] for place in places], chosen)

            # If the list changes meanwhile, all of them go to the shard of the first key.
            for place, iid in zip(places, await self._enter(keys[places[0]], several), strict=True):
                iids[place] = iid
        return iids

    async def refresh(self) -> None:
        """Read the list of shards."""
        async with self._refreshing:
            shards = await load_shards(self._addresses, self.logical)
            self._shards = {shard.name: shard for shard in shards if shard.state == "active"}
            self._ring = HashRing({name: each.weight for name, each in self._shards.items()})
            self._refreshed_at = asyncio.get_running_loop().time()

    async def _keep_fresh(self) -> None:
        if asyncio.get_running_loop().time() - self._refreshed_at > self._refresh_seconds:
            await self.refresh()

    async def _enter(self, key: str, post: Any) -> Any:
        await self._keep_fresh()
        for _ in range(TRIES):
            shard = self._shards[self.shard_of(key)]
            pool = await self._pool(shard)
            async with pool.connection() as connection, connection.transaction():
                is_open = await call(connection, "enter", self.logical)
                answer = await post(AsyncBus(connection)) if is_open else None
            if answer is not None:
                self._notifiers[shard.database].announce(self.logical)
                return answer
            # Drained since the list was read.
            await self.refresh()
        raise NoShard(
            f"the shard of {key!r} of {self.logical} takes no posts",
            hint="`postroad bridge shards list` shows them",
        )

    async def _pool(self, shard: Shard) -> AsyncConnectionPool[Any]:
        if shard.database not in self._pools:
            pool = await open_async_pool(
                self._addresses.database(shard.database), application_name="postroad shard"
            )

            async def send(queues: list[str]) -> None:
                async with pool.connection() as connection:
                    await connection.execute("select mbus.notify(%s)", (queues,))

            self._pools[shard.database] = pool
            self._notifiers[shard.database] = AsyncNotifier(send)
        return self._pools[shard.database]


def _key(headers: Mapping[str, str | None] | None) -> str:
    group = (headers or {}).get("group")
    return group if group else f"{random.getrandbits(64):x}"
