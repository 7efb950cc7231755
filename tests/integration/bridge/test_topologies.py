"""More than two databases: rings, chains and crossing ways, without loops and without doubles."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from postroad.bridge import DatabaseBridge, PumpSettings
from postroad.bus.hstore import parse
from postroad.testing import wait_until_async
from tests.chaos.bridge_load import IS_STRESS
from tests.integration.bridge.conftest import Databases, depth, name_of, queue, run, taken

POSTED = 2_000 if IS_STRESS else 100


@pytest.mark.timeout(180)
async def test_a_ring_of_three_with_bridges_both_ways_has_no_loops(one_version: Databases) -> None:
    ring = one_version(3)
    for dsn in ring:
        queue(dsn)
    bridges = [
        DatabaseBridge(
            f"to_{other}",
            source=ring[one],
            target=ring[other],
            queue="orders",
            settings=PumpSettings(connections=2, batch_messages=50),
        )
        for one in range(3)
        for other in range(3)
        if one != other
    ]
    for bridge in bridges:
        await bridge.install()
    for number, dsn in enumerate(ring):
        run(
            dsn,
            "select mbus.postn_orders(array(select hstore('n', %s::text || '-' || g)"
            " from generate_series(1, %s::integer) g))",
            number,
            POSTED,
        )
    async with AsyncExitStack() as running:
        for bridge in bridges:
            await running.enter_async_context(bridge)

        async def quiet() -> bool:
            waiting = [
                depth(ring[one], f"to_to_{other}")
                for one in range(3)
                for other in range(3)
                if one != other
            ]
            return sum(waiting) == 0 and all(depth(dsn, "default") >= 3 * POSTED for dsn in ring)

        await wait_until_async(quiet, what="everything everywhere", timeout_seconds=120)
    everything = sorted(f"{node}-{n}" for node in range(3) for n in range(1, POSTED + 1))
    for dsn in ring:
        found = sorted(str(parse(each.data)["n"]) for each in taken(dsn, amount=10 * POSTED))
        assert found == everything
    # Each message was offered on both ways: a loop was left out, a second copy dropped.
    assert sum(bridge.delivered for bridge in bridges) == 6 * POSTED
    looped = [run(dsn, "select sum(looped)::integer from bridge.sent")[0][0] for dsn in ring]
    assert sum(looped) + sum(bridge.dropped for bridge in bridges) == 12 * POSTED


async def test_a_chain_keeps_where_a_message_came_from(one_version: Databases) -> None:
    a, b, c = one_version(3)
    queue(a)
    first = DatabaseBridge("ab", source=a, target=b, queue="orders")
    await first.install()
    second = DatabaseBridge("bc", source=b, target=c, queue="orders", queue_at_target="ends")
    await second.install()
    ((iid,),) = run(a, "select mbus.post_orders('n=>1')")
    async with first, second:

        async def there() -> bool:
            return second.delivered == 1

        await wait_until_async(there, what="at the end of the chain")
    (message,) = taken(c, "ends")
    headers = parse(message.headers)
    assert headers["source_db"] == name_of(a)
    assert headers["source_iid"] == iid
    assert headers["seenby"] == "{" + ",".join(map(name_of, (a, b, c))) + "}"


async def test_databases_of_the_same_name_are_not_taken_for_each_other(
    one_version: Databases,
) -> None:
    a, b = one_version(2)
    queue(a)
    # As if another server had a database of the same name: the node tells them apart.
    run(b, "update mbus.node set name = 'other'")
    run(
        b,
        "create or replace function bridge.hello() returns table (database text, node text)"
        f" language sql stable as $$ select '{name_of(a)}'::text, 'other'::text $$",
    )
    bridge = DatabaseBridge("ab", source=a, target=b, queue="orders")
    await bridge.install()
    run(a, "select mbus.post_orders('n=>1')")
    async with bridge:

        async def there() -> bool:
            return bridge.delivered == 1

        await wait_until_async(there, what="arrived")
    assert len(taken(b)) == 1
