"""A bridge between two databases: what travels, in which order, and where it stops."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postroad.bridge import BridgeExists, DatabaseBridge, PayloadMismatch, PumpSettings
from postroad.bus import QueueNotFound
from postroad.bus.hstore import parse
from postroad.testing import wait_until_async
from tests.integration.bridge.conftest import Databases, depth, name_of, queue, run, taken


async def carried(bridge: DatabaseBridge, count: int) -> None:
    async def done() -> bool:
        return bridge.delivered + bridge.dropped + bridge.refused >= count

    await wait_until_async(done, what=f"{count} messages carried")


@pytest.mark.both_versions
async def test_everything_a_message_has_travels(databases: Databases) -> None:
    a, b = databases(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    expires = datetime.now(UTC) + timedelta(hours=1)
    ((iid,),) = run(
        a,
        "select mbus.post_orders('n=>1', 'group=>g7,colour=>red,dedup_key=>k1', 'state=>DONE',"
        " null, %s)",
        expires,
    )
    ((added,),) = run(
        a, "select added from mbus._read_messages(mbus._queue('orders'::text), 'default', 1)"
    )
    async with bridge:
        await carried(bridge, 1)
    (message,) = taken(b)
    headers = parse(message.headers)
    assert parse(message.data) == {"n": "1"}
    assert parse(message.properties) == {"state": "DONE"}
    assert message.expires == expires
    assert headers["group"] == "g7"
    assert headers["colour"] == "red"
    assert headers["dedup_key"] == "k1"
    assert headers["source_db"] == name_of(a)
    assert headers["seenby"] == f"{{{name_of(a)},{name_of(b)}}}"
    assert headers["source_iid"] == iid
    assert datetime.fromisoformat(headers["enqueue_time"] or "") == added
    # The key holds at the target, too.
    run(b, "select mbus.post_orders('n=>2', 'dedup_key=>k1')")
    assert taken(b) == []


@pytest.mark.both_versions
async def test_a_delay_and_a_priority_travel(databases: Databases) -> None:
    a, b = databases(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    due = datetime.now(UTC) + timedelta(milliseconds=300)
    run(a, "select mbus.post_orders('n=>late', null, null, %s)", due)
    run(a, "select mbus.post_orders('n=>normal')")
    run(a, "select mbus.post_orders('n=>first', 'priority=>high')")
    async with bridge:
        await carried(bridge, 3)
    messages = taken(b)
    assert [parse(each.data)["n"] for each in messages] == ["first", "normal", "late"]
    assert messages[2].delayed_until == due
    assert messages[2].added >= due


@pytest.mark.parametrize(
    ("payload", "data"),
    [("jsonb", '{"a": [1, "ä\\"{}"]}'), ("text", 'a,"b\\{}\n'), ("bytea", "\\x00ff5c22")],
)
async def test_every_payload_travels_unchanged(
    one_version: Databases, payload: str, data: str
) -> None:
    a, b = one_version(2)
    queue(a, payload=payload)
    bridge = DatabaseBridge(
        "out", source=a, target=b, queue="orders", queue_at_target="orders_of_a"
    )
    await bridge.install()
    run(a, "select mbus.post('orders', %s::text)", data)
    ((before,),) = run(a, "select data::text from mbus.consume_orders_by_default()")
    async with bridge:
        await carried(bridge, 1)
    ((after,),) = run(b, "select data::text from mbus.consume_orders_of_a_by_default()")
    assert after == before


async def test_order_is_kept_within_the_queue_and_each_group(one_version: Databases) -> None:
    a, b = one_version(2)
    queue(a)
    bridge = DatabaseBridge(
        "out", source=a, target=b, queue="orders", settings=PumpSettings(batch_messages=7)
    )
    await bridge.install()
    for start in range(0, 300, 30):
        run(
            a,
            "select mbus.postn_orders(array_agg(hstore('n', g::text)),"
            " array_agg(case when g %% 3 = 0 then hstore('group', 'g' || g %% 2) end))"
            " from generate_series(%s::integer, %s::integer) g",
            start,
            start + 29,
        )
    async with bridge:
        await carried(bridge, 300)
    rows = run(
        b,
        "select p.data_hstore -> 'n', p.headers -> 'group'"
        " from mbus._read_messages(mbus._queue('orders'::text), 'default', 1000) p",
    )
    plain = [int(number) for number, group in rows if group is None]
    assert plain == [number for number in range(300) if number % 3]
    for group in ("g0", "g1"):
        of_group = [int(number) for number, name in rows if name == group]
        assert of_group == [n for n in range(300) if n % 3 == 0 and f"g{n % 2}" == group]


async def test_a_selector_chooses_and_others_stay_out(one_version: Databases) -> None:
    a, b = one_version(2)
    queue(a)
    bridge = DatabaseBridge(
        "out", source=a, target=b, queue="orders", selector="(t.properties->'region')='eu'"
    )
    await bridge.install()
    run(a, "select mbus.post_orders('n=>1', null, 'region=>eu')")
    run(a, "select mbus.post_orders('n=>2', null, 'region=>us')")
    run(a, "select mbus.post_orders('n=>3', null, 'region=>eu')")
    async with bridge:
        await carried(bridge, 2)
    assert [parse(each.data)["n"] for each in taken(b)] == ["1", "3"]
    assert len(taken(a)) == 3


async def test_a_message_that_names_the_target_in_seenby_is_not_sent(
    one_version: Databases,
) -> None:
    a, b = one_version(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    run(a, "select mbus.post_orders('n=>1', hstore('seenby', %s))", f"{{{name_of(b)}}}")
    run(a, "select mbus.post_orders('n=>2')")
    async with bridge:
        await carried(bridge, 1)
    assert [parse(each.data)["n"] for each in taken(b)] == ["2"]
    assert depth(a, "to_out") == 0


async def test_what_the_target_refuses_goes_to_the_dmq_and_the_rest_arrives(
    one_version: Databases,
) -> None:
    a, b = one_version(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    run(a, "select mbus.post_orders(hstore('n', g::text)) from generate_series(1, 3) g")
    # What one version of the bus accepts another may refuse; here the sender wrote it by hand.
    run(a, "update mbus.\"ql$orders$0\" set headers = 'priority=>urgent' where data -> 'n' = '2'")
    async with bridge:
        await carried(bridge, 3)
    assert [parse(each.data)["n"] for each in taken(b)] == ["1", "3"]
    ((consumer, error),) = run(a, "select consumer, error from mbus.dead")
    assert consumer == "to_out"
    assert "unknown priority" in error
    # Mended and sent again: the ledger does not take it for one that has arrived.
    run(a, "update mbus.dmq set headers = null")
    assert run(a, "select mbus.redrive('orders')") == [(1,)]
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    async with bridge:
        await carried(bridge, 1)
    assert [parse(each.data)["n"] for each in taken(b)] == ["2"]


async def test_a_target_that_is_down_costs_the_source_depth_alone(one_version: Databases) -> None:
    a, b = one_version(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    away = f"{b} port=1" if "port=" not in b else b.replace("port=", "port=1")
    lost = DatabaseBridge("out", source=a, target=away, queue="orders")
    lost.signals.listen("failed")
    run(a, "select mbus.post_orders(hstore('n', g::text)) from generate_series(1, 5) g")
    async with lost:
        await lost.signals.wait("failed")
        await lost.signals.wait("failed")
        assert depth(a, "to_out") == 5
        assert run(
            a,
            "select count(*) from pg_stat_activity where application_name like 'postroad bridge%%'"
            " and state like 'idle in transaction%%' and datname = current_database()",
        ) == [(0,)]
    ((problem,),) = run(a, "select problem from bridge.status")
    assert "cannot be reached" in problem
    async with bridge:
        await carried(bridge, 5)
        assert run(a, "select is_run from bridge.status") == [(True,)]
    found = run(a, "select problem, lag, carried, is_run from bridge.status")
    assert found == [(None, 0, 5, False)]


async def test_a_second_process_stands_by_and_takes_over(one_version: Databases) -> None:
    a, b = one_version(2)
    queue(a)
    first = DatabaseBridge("out", source=a, target=b, queue="orders")
    second = DatabaseBridge("out", source=a, target=b, queue="orders")
    await first.install()
    second.signals.listen("standby", "pumping")
    async with first:
        run(a, "select mbus.post_orders('n=>1')")
        await carried(first, 1)
        await second.start()
        await second.signals.wait("standby")
        run(a, "select mbus.post_orders('n=>2')")
        await carried(first, 2)
    await second.signals.wait("pumping")
    run(a, "select mbus.post_orders('n=>3')")
    await carried(second, 1)
    await second.stop()
    assert [parse(each.data)["n"] for each in taken(b)] == ["1", "2", "3"]


async def test_pause_resume_and_drain(one_version: Databases) -> None:
    a, b = one_version(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    assert run(a, "select bridge.set_state('out', 'paused')") == [("running",)]
    run(a, "select mbus.post_orders(hstore('n', g::text)) from generate_series(1, 5) g")
    async with bridge:
        assert depth(a, "to_out") == 5
        run(a, "select bridge.set_state('out', 'draining')")

        async def drained() -> bool:
            return run(a, "select state from bridge.outlets") == [("drained",)]

        await wait_until_async(drained, what="drained")
        run(a, "select mbus.post_orders('n=>6')")
        assert depth(b, "default") == 5
        run(a, "select bridge.set_state('out', 'running')")
        await carried(bridge, 6)
    assert len(taken(b)) == 6


async def test_ends_that_do_not_fit_are_refused(one_version: Databases) -> None:
    a, b = one_version(2)
    with pytest.raises(QueueNotFound):
        await DatabaseBridge("out", source=a, target=b, queue="nothing").install()
    queue(a)
    queue(b, payload="jsonb")
    with pytest.raises(PayloadMismatch):
        await DatabaseBridge("out", source=a, target=b, queue="orders").install()
    await DatabaseBridge(
        "fits", source=a, target=b, queue="orders", queue_at_target="others"
    ).install()
    with pytest.raises(BridgeExists):
        await DatabaseBridge(
            "fits", source=a, target=b, queue="orders", queue_at_target="more"
        ).install()


async def test_the_address_of_a_target_may_change(one_version: Databases) -> None:
    """A standby is added to it, or the data folder is moved: it is the same bridge."""
    a, b = one_version(2)
    queue(a)
    await DatabaseBridge("out", source=a, target=b, queue="orders").install()
    run(a, "select mbus.post_orders('n=>1')")
    other = f"{b} connect_timeout=5"
    bridge = DatabaseBridge("out", source=a, target=other, queue="orders")
    await bridge.install()
    async with bridge:
        await carried(bridge, 1)
    assert len(taken(b)) == 1
    run(a, "select mbus.create_queue('more')")
    with pytest.raises(BridgeExists):
        await DatabaseBridge("out", source=a, target=b, queue="more").install()


async def test_messages_of_any_size_keep_to_the_bytes_of_a_batch(one_version: Databases) -> None:
    a, b = one_version(2)
    queue(a, payload="text")
    settings = PumpSettings(batch_bytes=100_000)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders", settings=settings)
    await bridge.install()
    run(a, "select mbus.post_orders(repeat('x', 50000)) from generate_series(1, 200) g")
    sizes: list[Any] = []
    async with bridge:
        await carried(bridge, 200)
    sizes = [count for (count,) in run(a, "select messages from bridge.sent order by batch")]
    # The first batches are taken before anybody knows how large messages are.
    assert max(sizes[3:]) <= 2
    assert sum(sizes) == 200


async def test_a_bridge_is_drained_when_delayed_messages_have_left_too(
    one_version: Databases,
) -> None:
    a, b = one_version(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    bridge.signals.listen("idle")
    run(
        a,
        "select mbus.post_orders('n=>1', delayed_until => clock_timestamp() + interval '1 day')",
    )
    async with bridge:
        run(a, "select bridge.set_state('out', 'draining')")
        for _ in range(3):
            await bridge.signals.wait("idle")
        assert run(a, "select state, lag from bridge.status") == [("draining", 1)]
        # A day later.
        run(
            a,
            "create or replace function mbus.now() returns timestamptz language sql volatile"
            " parallel safe as $$ select pg_catalog.clock_timestamp() + interval '2 days' $$",
        )

        async def drained() -> bool:
            return run(a, "select state, lag from bridge.status") == [("drained", 0)]

        await wait_until_async(drained, what="drained")
    assert bridge.delivered == 1


@pytest.mark.parametrize(
    "headers",
    [
        'seenby_nodes => "{broken"',
        'seenby_nodes => "{{a@b},{c@d}}", source_iid => orders.1@abc',
        'seenby_nodes => "{a@b}", source_iid => "no iid"',
        'seenby_nodes => "{a}", source_iid => orders.1@abc',
        "seenby_nodes => NULL, source_iid => NULL, enqueue_time => never",
    ],
)
async def test_headers_that_no_bridge_has_written_hold_up_nothing(
    one_version: Databases, headers: str
) -> None:
    a, b = one_version(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    run(a, "select mbus.post_orders('n=>1', %s)", headers)
    run(a, "select mbus.post_orders('n=>2')")
    async with bridge:
        await carried(bridge, 2)
    assert [parse(each.data)["n"] for each in taken(b)] == ["1", "2"]


async def test_a_bridge_takes_nothing_from_a_queue_that_is_paused(databases: Databases) -> None:
    a, b = databases(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    run(a, "select mbus.pause('orders')")
    run(a, "select mbus.post_orders('n=>1')")
    async with bridge:
        # Another bridge, over a queue that is not paused, has had the time to carry a message.
        queue(a, "stock")
        other = DatabaseBridge("stock", source=a, target=b, queue="stock")
        await other.install()
        run(a, "select mbus.post_stock('n=>2')")
        async with other:
            await carried(other, 1)
        assert bridge.delivered == 0
        run(a, "select mbus.resume('orders')")
        await carried(bridge, 1)
    assert len(taken(b)) == 1
