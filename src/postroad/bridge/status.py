"""Read-only facts about bridges: what the console, the command line and metrics show."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

import psycopg

from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import transact
from postroad.bridge.errors import BridgeError
from postroad.bridge.registry import Bridge, find, load
from postroad.errors import first_line
from postroad.postgres.calls import Row, rows
from postroad.postgres.errors import DatabaseError


@dataclass(frozen=True, slots=True)
class BridgeStatus(Bridge):
    """A registered bridge and its state (view bridge.status).

    The state is unknown when its database is unavailable. `lag` is the number of messages that wait
    to cross, None before the first check; `lag_age` is the age of the oldest of them, None if the
    source does not report it. `per_second` covers the last ten seconds; `carried` and `dropped`
    (duplicates) the last hour; `refused` are dead messages, which need an operator. `problem` is
    the error that stops the bridge; `is_run`, whether a process runs it.
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


async def status(addresses: Addresses, name: str | None = None) -> list[BridgeStatus]:
    """Return the state of one bridge or of all; an unavailable database is reported, not raised."""
    wanted = [await find(addresses, name)] if name else await load(addresses)
    ends: dict[tuple[str, str], Row] = {}
    problems: dict[str, str] = {}
    for place in {bridge.place for bridge in wanted}:
        try:
            for row in await _read(addresses, place, "select * from bridge.status"):
                ends[place, row["name"]] = row
        except (psycopg.Error, DatabaseError, BridgeError) as away:
            problems[place] = first_line(away)
    return [
        _status(bridge, ends.get((bridge.place, bridge.name)), problems.get(bridge.place))
        for bridge in wanted
    ]


async def _read(addresses: Addresses, place: str, text: str, *parameters: str) -> list[Row]:
    async with transact(addresses.database(place)) as connection:
        return await rows(connection, text, *parameters)


def _status(bridge: Bridge, row: Row | None, problem: str | None) -> BridgeStatus:
    known = BridgeStatus(**asdict(bridge))
    if row is None:
        return replace(known, problem=problem or "its end is not open; add it again")
    seen = replace(known, **{name: row[name] for name in BridgeStatus.__annotations__})
    if not seen.is_run and seen.problem is None and seen.state in ("running", "draining"):
        return replace(seen, problem="no process runs it; start it with: postroad bridge run")
    return seen


async def shard_statuses(addresses: Addresses) -> list[Row]:
    """Return the status of all shards; an unavailable database is reported, not raised."""
    text = (
        "select sum(depth)::bigint as depth, max(posted_per_second) as posted_per_second,"
        " sum(consumed_per_second) as consumed_per_second from mbus.status where queue = %s"
    )
    nothing: Row = {"depth": None, "posted_per_second": None, "consumed_per_second": None}
    shards: list[Row] = []
    for queue, weights in sorted(addresses.shards.items()):
        for name, weight in sorted(weights.items()):
            try:
                (found,) = await _read(addresses, name, text, queue)
                problem = "the queue does not exist there" if found["depth"] is None else None
            except (psycopg.Error, DatabaseError, BridgeError) as away:
                found, problem = nothing, first_line(away)
            shard = {"id": f"{queue}/{name}", "logical": queue, "name": name, "weight": weight}
            shards.append({**shard, **found, "problem": problem})
    return shards
