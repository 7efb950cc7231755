"""`ShardedQueue`: posts to one logical queue that lies in several databases.

A message goes to the shard of its group (consistent hashing), so that its group keeps its order;
one without a group goes anywhere. A shard that does not answer fails the posts of its groups;
others are not concerned. While shards come and go some groups move: what was posted before the
move may then be worked on beside what comes after it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from psycopg_pool import AsyncConnectionPool

from postroad.bridge.addresses import Addresses
from postroad.bridge.errors import NoShard
from postroad.bridge.hash_ring import HashRing
from postroad.bridge.shards import Shard, load_shards
from postroad.bus import AsyncBus
from postroad.bus.hstore import Hstore
from postroad.bus.notifier import AsyncNotifier
from postroad.postgres.connections import open_async_pool

__all__ = ["ShardedQueue"]

REFRESH_DEFAULT = timedelta(seconds=1)
# A shard may close between the look at the list and the post, but not again and again.
TRIES = 5


class ShardedQueue:
    """A logical queue as its posters see it; an async context manager."""

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
        """Tell the shard of a group. Raises NoShard."""
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

            # The key of the first leads to the shard of all of them, unless the list changes
            # meanwhile: then all of them follow the first, and no message is lost.
            for place, iid in zip(places, await self._enter(keys[places[0]], several), strict=True):
                iids[place] = iid
        return iids

    async def refresh(self) -> None:
        """Read the list of shards anew."""
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
                cursor = await connection.execute("select bridge.enter(%s)", (self.logical,))
                row = await cursor.fetchone()
                answer = await post(AsyncBus(connection)) if row and row[0] else None
            if answer is not None:
                self._notifiers[shard.database].announce(self.logical)
                return answer
            # Closed since we looked at the list: look again.
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
