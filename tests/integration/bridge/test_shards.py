"""One logical queue over several databases: posts by group, workers everywhere, moving shards."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from postroad.bridge import Addresses, NoShard, ShardedQueue, ShardedWorker
from postroad.bridge.status import shard_statuses
from postroad.bus import AsyncWorker, ConsumerNotFound
from postroad.testing import wait_until_async
from tests.chaos.bridge_load import IS_STRESS
from tests.integration.bridge.conftest import Databases, depth

GROUPS = 40
LOAD = 20_000 if IS_STRESS else 600


def addressed(databases: list[str], **weights: int) -> Addresses:
    named = {f"s{number}": dsn for number, dsn in enumerate(databases)}
    return Addresses(databases[0], named, shards={"orders": weights or dict.fromkeys(named, 1)})


async def test_posts_go_by_group_and_stay_there(one_version: Databases) -> None:
    databases = one_version(3)
    async with ShardedQueue(addressed(databases), "orders") as orders:
        await orders.install("jsonb")
        await orders.install("jsonb")
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


@pytest.mark.parametrize("weights", [{}, {"s0": 0}])
async def test_without_a_shard_a_queue_names_the_setting(weights: dict[str, int]) -> None:
    with pytest.raises(NoShard, match="orders") as refused:
        ShardedQueue(Addresses("dbname=home", shards={"orders": weights}), "orders")
    assert "bridge.shards.orders" in (refused.value.hint or "")


async def test_a_sharded_worker_fails_where_a_shard_has_no_queue(one_version: Databases) -> None:
    databases = one_version(2)
    async with ShardedQueue(addressed(databases[:1]), "orders") as orders:
        await orders.install()

    def equip(worker: AsyncWorker) -> None:
        @worker.handler("orders")
        async def ignore(message: Any, connection: Any) -> None:
            del message, connection

    worker = ShardedWorker(addressed(databases), "orders", equip)
    with pytest.raises(ConsumerNotFound):
        async with worker:
            await worker.join()


async def test_a_shard_whose_worker_fails_does_not_stop_the_others(
    one_version: Databases,
) -> None:
    addresses = addressed(one_version(2))
    workers: list[AsyncWorker] = []
    seen: list[str] = []

    def equip(worker: AsyncWorker) -> None:
        workers.append(worker)

        @worker.handler("orders")
        async def note(message: Any, connection: Any) -> None:
            del connection
            seen.append(message.data["n"])

    async with ShardedQueue(addresses, "orders") as orders:
        await orders.install()
    sharded = ShardedWorker(addresses, "orders", equip)
    async with ShardedQueue(addresses, "orders") as orders, sharded as worker:
        for each in workers:
            await each.ready()
        workers[0].fail(ValueError("a defect"))
        await orders.post_many([{"n": str(n)} for n in range(20)])

        async def done() -> bool:
            return sorted(seen, key=int) == [str(n) for n in range(20)]

        await wait_until_async(done, what="both shards are consumed")
        assert worker.is_running
    assert len(workers) == 3


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_nothing_is_lost_while_one_shard_is_added_and_one_emptied_under_load(
    one_version: Databases,
) -> None:
    databases = one_version(5)
    before = addressed(databases, s0=1, s1=1, s2=1, s3=1)
    after = addressed(databases, s0=1, s1=0, s2=1, s3=1, s4=1)
    seen: Counter[int] = Counter()

    def equip(worker: AsyncWorker) -> None:
        @worker.handler("orders", prefetch=20)
        async def note(message: Any, connection: Any) -> None:
            del connection
            seen[message.data["n"]] += 1

    async def produce(addresses: Addresses, numbers: range) -> None:
        async with ShardedQueue(addresses, "orders") as orders:
            for first in numbers[::10]:
                tens = range(first, first + 10)
                await orders.post_many(
                    [{"n": n} for n in tens], [{"group": f"g{n % GROUPS}"} for n in tens]
                )

    async with ShardedQueue(after, "orders") as orders:
        await orders.install("jsonb")
    # As after a restart with new settings: workers first, then one client after the other.
    async with ShardedWorker(after, "orders", equip):
        old = asyncio.create_task(produce(before, range(LOAD)))
        await produce(after, range(LOAD, 2 * LOAD))
        await old

        async def done() -> bool:
            return len(seen) == 2 * LOAD

        await wait_until_async(done, what="all consumed", timeout_seconds=200)
        statuses = await shard_statuses(after)
    assert set(seen.values()) == {1}
    assert [(each["name"], each["weight"], each["depth"]) for each in statuses] == [
        ("s0", 1, 0), ("s1", 0, 0), ("s2", 1, 0), ("s3", 1, 0), ("s4", 1, 0)
    ]  # fmt: skip
