"""The shards of logical queues: their list, their status, and what an operator may do.

```
(none) ──add──▶ active ──drain──▶ draining ──empty──▶ drained ──remove──▶ (none)
                  ▲                   │                  │
                  └──────────────── add ────────────────┘
```

The list is kept in the database `home`. Whether a shard takes posts is decided by a gate in the
shard's database, inside the transaction that posts: a client with an old list is refused instead of
leaving a message in a shard that no worker reads any more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import psycopg
from psycopg.rows import class_row

from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import call, transact
from postroad.bridge.errors import BridgeError, BridgeNotFound
from postroad.bus.payload import Payload
from postroad.postgres.errors import DatabaseError


@dataclass(frozen=True, slots=True)
class Shard:
    """One database of a logical queue."""

    logical: str
    name: str
    database: str
    state: str
    weight: int


@dataclass(frozen=True, slots=True)
class ShardStatus(Shard):
    """The status of one shard; `depth` is None when its database is away."""

    depth: int | None = None
    posted_per_second: float | None = None
    consumed_per_second: float | None = None
    problem: str | None = None


async def load_shards(addresses: Addresses, logical: str | None = None) -> list[Shard]:
    """List the shards of one logical queue or of all."""
    async with transact(addresses.home) as connection:
        cursor = connection.cursor(row_factory=class_row(Shard))
        await cursor.execute(
            "select logical, name, database, state, weight from bridge.shard"
            " where %s::text is null or logical = %s order by logical, name",
            (logical, logical),
        )
        return await cursor.fetchall()


async def add_shard(
    addresses: Addresses,
    logical: str,
    database: str,
    *,
    name: str | None = None,
    weight: int = 1,
    payload: Payload = "hstore",
) -> None:
    """Add a database to a logical queue, or reactivate one that was draining.

    The queue is created there if it does not exist. Posts go there within a second.
    """
    addresses.refuse_secret(database)
    async with transact(addresses.database(database)) as connection:
        await connection.execute(
            "select mbus.create_queue(%s::text, payload => %s::regtype)"
            " where not exists (select from mbus.queues where queue = %s)",
            (logical, payload, logical),
        )
        await call(connection, "set_gate", logical, True)
    async with transact(addresses.home) as connection:
        await call(connection, "add_shard", logical, name or database, database, weight)


async def drain_shard(addresses: Addresses, logical: str, name: str) -> None:
    """Stop posts to a shard; workers empty it, then it is drained."""
    shard = await _find(addresses, logical, name)
    async with transact(addresses.home) as connection:
        await call(connection, "set_shard_state", logical, name, "draining")
    async with transact(addresses.database(shard.database)) as connection:
        await call(connection, "set_gate", logical, False)


async def remove_shard(addresses: Addresses, logical: str, name: str) -> None:
    """Remove a drained shard. Raises BridgeError for any other."""
    shard = await _find(addresses, logical, name)
    if shard.state != "drained":
        raise BridgeError(
            f"shard {name} of {logical} is {shard.state}",
            hint=f"empty it first: postroad bridge shards drain {logical} {name}",
        )
    async with transact(addresses.home) as connection:
        await call(connection, "remove_shard", logical, name)


async def settle_shards(addresses: Addresses, logical: str | None = None) -> list[str]:
    """Mark draining shards that are empty as drained; return their names."""
    done = []
    for each in await shard_statuses(addresses, logical):
        if each.state == "draining" and each.depth == 0:
            async with transact(addresses.home) as connection:
                await call(connection, "set_shard_state", each.logical, each.name, "drained")
            done.append(each.name)
    return done


async def shard_statuses(addresses: Addresses, logical: str | None = None) -> list[ShardStatus]:
    """Return the status of shards; for a database that is away, with its problem."""
    return [await _status(addresses, shard) for shard in await load_shards(addresses, logical)]


async def _status(addresses: Addresses, shard: Shard) -> ShardStatus:
    status = ShardStatus(**asdict(shard))
    try:
        async with transact(addresses.database(shard.database)) as connection:
            cursor = await connection.execute(
                "select sum(s.depth)::bigint, max(s.posted_per_second),"
                " sum(s.consumed_per_second), (select g.is_open from bridge.gate g"
                " where g.logical = %s) from mbus.status s where s.queue = %s",
                (shard.logical, shard.logical),
            )
            row = await cursor.fetchone()
    except (psycopg.Error, DatabaseError, BridgeError) as away:
        return replace(status, problem=str(away).strip().splitlines()[0])
    depth, posted, consumed, is_open = row or (None, None, None, None)
    if shard.state == "draining" and is_open:
        # The drain was interrupted between its two steps: messages may still be posted.
        return replace(status, problem="its gate is still open; drain it again")
    return replace(status, depth=depth, posted_per_second=posted, consumed_per_second=consumed)


async def _find(addresses: Addresses, logical: str, name: str) -> Shard:
    for shard in await load_shards(addresses, logical):
        if shard.name == name:
            return shard
    raise BridgeNotFound(
        f"{logical} has no shard {name}", hint="`postroad bridge shards list` shows them"
    )
