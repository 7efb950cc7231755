"""Read-only facts about bridges: what the console, the command line and metrics show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import transact
from postroad.bridge.errors import BridgeError
from postroad.bridge.registry import Bridge, find, load
from postroad.bridge.shards import ShardStatus, shard_statuses
from postroad.postgres.errors import DatabaseError

__all__ = ["BridgeStatus", "ShardStatus", "bridges", "shard_statuses", "status"]


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """The state of one bridge (view bridge.status).

    Attributes:
        name: its name in this installation.
        kind: database, rabbitmq_out or rabbitmq_in.
        source: where messages come from.
        target: where they go to.
        queue: the queue at the source.
        queue_at_target: the queue at the target.
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

    name: str
    kind: str
    source: str
    target: str
    queue: str
    queue_at_target: str
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


_FIELDS = (
    "state", "lag", "lag_age", "per_second", "carried", "dropped", "refused", "last_at",
    "problem", "problem_at", "is_run",
)  # fmt: skip


async def bridges(addresses: Addresses) -> list[Bridge]:
    """List the registered bridges."""
    return await load(addresses)


async def status(addresses: Addresses, name: str | None = None) -> list[BridgeStatus]:
    """Return the state of one bridge or of all; an unavailable database is reported, not raised."""
    wanted = [await find(addresses, name)] if name else await load(addresses)
    by_place: dict[str, dict[str, dict[str, Any]]] = {}
    problems: dict[str, str] = {}
    for place in {bridge.place for bridge in wanted}:
        try:
            by_place[place] = await _rows(addresses.database(place))
        except (psycopg.Error, DatabaseError, BridgeError) as away:
            problems[place] = str(away).strip().splitlines()[0]
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
    known = BridgeStatus(
        bridge.name,
        bridge.kind,
        bridge.source,
        bridge.target,
        bridge.queue,
        bridge.queue_at_target,
    )
    row = rows.get(bridge.name)
    if row is None:
        return replace(known, problem=problem or "its end is not open; add it again")
    seen = replace(known, **{name: row[name] for name in _FIELDS})
    if not seen.is_run and seen.problem is None and seen.state in ("running", "draining"):
        return replace(seen, problem="nobody runs it; start it with: postroad bridge run")
    return seen
