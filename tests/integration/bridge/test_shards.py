"""One logical queue over several databases: posts by group, workers everywhere, moving shards."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from postroad.bridge import Addresses, BridgeError, NoShard, ShardedQueue, ShardedWorker
from postroad.bridge.shards import (
    add_shard,
    drain_shard,
    load_shards,
    remove_shard,
    settle_shards,
    shard_statuses,
)
from postroad.bus import AsyncWorker
from postroad.testing import wait_until_async
from tests.chaos.bridge_load import IS_STRESS
from tests.integration.bridge.conftest import Databases, depth

GROUPS = 40
LOAD = 20_000 if IS_STRESS else 600


def addressed(databases: list[str]) -> Addresses:
    return Addresses(databases[0], {f"s{number}": dsn for number, dsn in enumerate(databases)})


async def test_posts_go_by_group_and_stay_there(one_version: Databases) -> None:
    databases = one_version(3)
    addresses = addressed(databases)
    for name in ("s0", "s1", "s2"):
        await add_shard(addresses, "orders", name, payload="jsonb")
    async with ShardedQueue(addresses, "orders") as orders:
        iids = await orders.post_many(
            [{"n": number} for number in range(300)],
            [{"group": f"g{number % GROUPS}"} for number in range(300)],
        )
        await orders.post({"n": 300}, {"group": "g0"})
        homes = {f"g{number}": orders.shard_of(f"g{number}") for number in range(GROUPS)}
    assert len(set(iids)) >= 100
    assert set(homes.values()) == {"s0", "s1", "s2"}
    depths = [depth(dsn, "default") for dsn in databases]
    assert sum(depths) == 301
    assert min(depths) > 0
    expected = Counter(homes[f"g{number % GROUPS}"] for number in [*range(300), 0])
    assert {f"s{number}": count for number, count in enumerate(depths)} == dict(expected)


async def test_without_a_shard_a_post_says_what_to_do(one_version: Databases) -> None:
    addresses = addressed(one_version(1))
    async with ShardedQueue(addresses, "orders") as orders:
        with pytest.raises(NoShard, match="no shard of orders"):
            await orders.post({"n": "1"})


async def test_a_closed_gate_turns_a_poster_with_an_old_list_away(one_version: Databases) -> None:
    databases = one_version(2)
    addresses = addressed(databases)
    await add_shard(addresses, "orders", "s0")
    await add_shard(addresses, "orders", "s1")
    async with ShardedQueue(addresses, "orders") as orders:
        group = next(f"g{n}" for n in range(100) if orders.shard_of(f"g{n}") == "s1")
        await drain_shard(addresses, "orders", "s1")
        await orders.post({"n": "1"}, {"group": group})
    assert (depth(databases[0], "default"), depth(databases[1], "default")) == (1, 0)
    with pytest.raises(BridgeError, match="draining"):
        await remove_shard(addresses, "orders", "s1")
    assert await settle_shards(addresses) == ["s1"]
    await remove_shard(addresses, "orders", "s1")
    assert [shard.name for shard in await load_shards(addresses)] == ["s0"]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_nothing_is_lost_while_one_shard_is_added_and_one_drained_under_load(
    one_version: Databases, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = addressed(one_version(5))
    for name in ("s0", "s1", "s2", "s3"):
        await add_shard(addresses, "orders", name, payload="jsonb")
    seen: Counter[int] = Counter()

    def equip(worker: AsyncWorker) -> None:
        @worker.handler("orders", prefetch=20)
        async def note(message: Any, connection: Any) -> None:
            del connection
            seen[message.data["n"]] += 1

    posted = 0
    is_over = asyncio.Event()

    async def produce(orders: ShardedQueue) -> None:
        nonlocal posted
        while not is_over.is_set() or posted < LOAD:
            numbers = range(posted, posted + 10)
            await orders.post_many(
                [{"n": n} for n in numbers], [{"group": f"g{n % GROUPS}"} for n in numbers]
            )
            posted += 10

    async def reached(count: int) -> None:
        async def enough() -> bool:
            return posted >= count

        await wait_until_async(enough, what=f"{count} posted", timeout_seconds=200)

    worker = ShardedWorker(addresses, "orders", equip)
    worker.signals.listen("left")
    async with worker, ShardedQueue(addresses, "orders") as orders:
        producing = asyncio.create_task(produce(orders))
        await reached(LOAD // 4)
        await add_shard(addresses, "orders", "s4", payload="jsonb")
        await reached(LOAD // 2)
        await drain_shard(addresses, "orders", "s1")
        # Its worker leaves by itself once the shard is empty.
        assert await worker.signals.wait("left", 60) == "s1"
        is_over.set()
        await producing

        async def done() -> bool:
            return len(seen) == posted

        await wait_until_async(done, what="all consumed", timeout_seconds=120)
        states = {each.name: each for each in await shard_statuses(addresses, "orders")}
    with capsys.disabled():
        print(  # noqa: T201 - a figure that people ask for
            f"\nshards: posted {posted}, consumed {sum(seen.values())}, distinct {len(seen)}"
        )
    assert set(seen.values()) == {1}
    assert states["s1"].state == "drained"
    assert [each.depth for each in states.values()] == [0] * 5
