"""Read-only facts about bridges: what the console, the command line and metrics show."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import transact
from postroad.bridge.errors import BridgeError
from postroad.bridge.registry import Bridge, find, load
from postroad.errors import first_line
from postroad.postgres.errors import DatabaseError


@dataclass(frozen=True, slots=True)
class BridgeStatus(Bridge):
    """A registered bridge and its state (view bridge.status).

    Attributes:
        state: running, paused, draining, drained, or unknown when its database is away.
        lag: messages that wait to cross; None before the first check.
        lag_age: age of the oldest of them, where the source reports it.
        per_second: messages carried per second, over the last ten seconds.
        carried: messages carried in the last hour.
        dropped: left out in the last hour: the target has had them.
        refused: dead messages of the bridge, which need an operator.
        last_at: when the last batch crossed.
        problem: what keeps the bridge from working; None when nothing does.
        problem_at: since when.
        is_run: whether some process runs it at present.
    """

    state: str = "unknown"
    lag: int | None = None
    lag_age: timedelta | None = None
    per_second: float = 0.0
    carried: int = 0
    dropped: int = 0
    refused: int = 0
    last_at: datetime | None = None
    problem: str | None = None
    problem_at: datetime | None = None
    is_run: bool = False


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The status of one shard of a logical queue; `depth` is None when its database is away."""

    logical: str
    name: str
    weight: int
    depth: int | None = None
    posted_per_second: float | None = None
    consumed_per_second: float | None = None
    problem: str | None = None


async def status(addresses: Addresses, name: str | None = None) -> list[BridgeStatus]:
    """Return the state of one bridge or of all; an unavailable database is reported, not raised."""
    wanted = [await find(addresses, name)] if name else await load(addresses)
    by_place: dict[str, dict[str, dict[str, Any]]] = {}
    problems: dict[str, str] = {}
    for place in {bridge.place for bridge in wanted}:
        try:
            by_place[place] = await _rows(addresses.database(place))
        except (psycopg.Error, DatabaseError, BridgeError) as away:
            problems[place] = first_line(away)
    return [
        _status(bridge, by_place.get(bridge.place, {}), problems.get(bridge.place))
        for bridge in wanted
    ]


async def _rows(dsn: str) -> dict[str, dict[str, Any]]:
    async with transact(dsn) as connection:
        cursor = connection.cursor(row_factory=dict_row)
        await cursor.execute("select * from bridge.status")
        return {row["name"]: row for row in await cursor.fetchall()}


def _status(bridge: Bridge, rows: dict[str, dict[str, Any]], problem: str | None) -> BridgeStatus:
    known = BridgeStatus(**asdict(bridge))
    row = rows.get(bridge.name)
    if row is None:
        return replace(known, problem=problem or "its end is not open; add it again")
    seen = replace(known, **{name: row[name] for name in BridgeStatus.__annotations__})
    if not seen.is_run and seen.problem is None and seen.state in ("running", "draining"):
        return replace(seen, problem="no process runs it; start it with: postroad bridge run")
    return seen


async def shard_statuses(addresses: Addresses, logical: str | None = None) -> list[ShardStatus]:
    """Return the status of the shards of one logical queue or of all."""
    return [
        await _shard_status(addresses, ShardStatus(queue, name, weight))
        for queue, weights in sorted(addresses.shards.items())
        if logical in (None, queue)
        for name, weight in sorted(weights.items())
    ]


async def _shard_status(addresses: Addresses, shard: ShardStatus) -> ShardStatus:
    try:
        async with transact(addresses.database(shard.name)) as connection:
            cursor = await connection.execute(
                "select sum(s.depth)::bigint, max(s.posted_per_second), sum(s.consumed_per_second)"
                " from mbus.status s where s.queue = %s",
                (shard.logical,),
            )
            ((depth, posted, consumed),) = await cursor.fetchall()
    except (psycopg.Error, DatabaseError, BridgeError) as away:
        return replace(shard, problem=first_line(away))
    problem = "the queue does not exist there" if depth is None else None
    return replace(
        shard, depth=depth, posted_per_second=posted, consumed_per_second=consumed, problem=problem
    )
