"""The shards of logical queues: who they are, how they stand, and what an operator may do.

```
(none) ──add──▶ active ──drain──▶ draining ──empty──▶ drained ──remove──▶ (none)
                  ▲                   │                  │
                  └──────────────── add ────────────────┘
```

The list is kept in the house's own database. Whether a shard takes posts is decided by a gate in
the shard's database, inside the transaction that posts: so a poster with an old list is turned away
instead of leaving a message where nobody looks any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import psycopg
from psycopg.rows import class_row

from postroad.bridge.addresses import Addresses
from postroad.bridge.ends import speaking
from postroad.bridge.errors import BridgeError, BridgeNotFound
from postroad.bus.payload import Payload
from postroad.postgres.errors import DatabaseError

__all__ = [
    "Shard",
    "ShardStatus",
    "add_shard",
    "drain_shard",
    "load_shards",
    "remove_shard",
    "settle_shards",
    "shard_epoch",
    "shard_statuses",
]


@dataclass(frozen=True, slots=True)
class Shard:
    """One database of a logical queue."""

    logical: str
    name: str
    database: str
    state: str
    weight: int


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """How one shard stands; `depth` is None when its database is away."""

    logical: str
    name: str
    database: str
    state: str
    weight: int
    depth: int | None = None
    posted_per_second: float | None = None
    consumed_per_second: float | None = None
    problem: str | None = None


async def load_shards(addresses: Addresses, logical: str | None = None) -> list[Shard]:
    """List the shards of one logical queue or of all."""
    async with speaking(addresses.home) as connection:
        cursor = connection.cursor(row_factory=class_row(Shard))
        await cursor.execute(
            "select logical, name, database, state, weight from bridge.shard"
            " where %s::text is null or logical = %s order by logical, name",
            (logical, logical),
        )
        return await cursor.fetchall()


async def shard_epoch(addresses: Addresses) -> int:
    """Return a number that grows with every change of the list."""
    async with speaking(addresses.home) as connection:
        cursor = await connection.execute(
            "select coalesce(pg_sequence_last_value('bridge.shard_epoch'), 0)"
        )
        row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def add_shard(
    addresses: Addresses,
    logical: str,
    database: str,
    *,
    name: str | None = None,
    weight: int = 1,
    payload: Payload = "hstore",
) -> None:
    """Add a database to a logical queue, or let one have posts again that was draining.

    The queue is made there when it is missing. Posts go there within a second.
    """
    addresses.refuse_secret(database)
    async with speaking(addresses.database(database)) as connection:
        await connection.execute(
            "select mbus.create_queue(%s::text, payload => %s::regtype)"
            " where not exists (select from mbus.queues where queue = %s)",
            (logical, payload, logical),
        )
        await connection.execute("select bridge.set_gate(%s, true)", (logical,))
    async with speaking(addresses.home) as connection:
        await connection.execute(
            "select bridge.add_shard(%s, %s, %s, %s)",
            (logical, name or database, database, weight),
        )


async def drain_shard(addresses: Addresses, logical: str, name: str) -> None:
    """Let a shard have no more posts; workers go on until it is empty, then it is drained."""
    shard = await _find(addresses, logical, name)
    await _set_state(addresses, shard, "draining")
    async with speaking(addresses.database(shard.database)) as connection:
        await connection.execute("select bridge.set_gate(%s, false)", (logical,))


async def remove_shard(addresses: Addresses, logical: str, name: str) -> None:
    """Forget a shard that is drained. Raises BridgeError when it is not."""
    shard = await _find(addresses, logical, name)
    if shard.state != "drained":
        raise BridgeError(
            f"shard {name} of {logical} is {shard.state}",
            hint=f"empty it first: postroad bridge shards drain {logical} {name}",
        )
    async with speaking(addresses.home) as connection:
        await connection.execute("select bridge.remove_shard(%s, %s)", (logical, name))


async def settle_shards(addresses: Addresses, logical: str | None = None) -> list[str]:
    """Let shards be drained that were draining and are empty; return their names."""
    done = []
    for status in await shard_statuses(addresses, logical):
        if status.state == "draining" and status.depth == 0:
            shard = Shard(status.logical, status.name, status.database, status.state, status.weight)
            await _set_state(addresses, shard, "drained")
            done.append(status.name)
    return done


async def shard_statuses(addresses: Addresses, logical: str | None = None) -> list[ShardStatus]:
    """Tell how shards stand; a database that is away is told, not raised."""
    return [await _status(addresses, shard) for shard in await load_shards(addresses, logical)]


async def _status(addresses: Addresses, shard: Shard) -> ShardStatus:
    status = ShardStatus(shard.logical, shard.name, shard.database, shard.state, shard.weight)
    try:
        async with speaking(addresses.database(shard.database)) as connection:
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
        # The drain was interrupted between its two steps; it is not over before the gate is shut.
        return replace(status, problem="its gate is still open; drain it again")
    return replace(status, depth=depth, posted_per_second=posted, consumed_per_second=consumed)


async def _find(addresses: Addresses, logical: str, name: str) -> Shard:
    for shard in await load_shards(addresses, logical):
        if shard.name == name:
            return shard
    raise BridgeNotFound(
        f"{logical} has no shard {name}", hint="`postroad bridge shards list` shows them"
    )


async def _set_state(addresses: Addresses, shard: Shard, state: str) -> None:
    async with speaking(addresses.home) as connection:
        await connection.execute(
            "select bridge.set_shard_state(%s, %s, %s)", (shard.logical, shard.name, state)
        )
