"""What operators see and do: queues, consumers, status, dmq, maintenance."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroad.bus import (
    AsyncBus,
    Bus,
    ConsumerExists,
    ConsumerNotFound,
    InvalidArgument,
    InvalidName,
    InvalidSelector,
    LastConsumer,
    NameTooLong,
    NotInstalled,
    QueueExists,
    QueueNotFound,
)


async def test_queues_and_consumers_are_listed_as_they_were_made(bus):
    await bus.create_queue("orders", ncons=4, payload="jsonb")
    await bus.create_consumer("orders", "audit", "(t.properties->'a')='b'")
    await bus.alter_consumer(
        "orders", "audit", 3, backoff=timedelta(seconds=5), backoff_max=timedelta(minutes=1)
    )
    [queue] = await bus.queues()
    assert (queue.queue, queue.payload, queue.ncons) == ("orders", "jsonb", 4)
    assert sorted(queue.consumers) == ["audit", "default"]
    audit, default = await bus.consumers("orders")
    assert (audit.consumer, audit.max_attempts) == ("audit", 3)
    assert (audit.backoff, audit.backoff_max) == (timedelta(seconds=5), timedelta(minutes=1))
    assert audit.selector is not None
    assert (default.consumer, default.max_attempts) == ("default", 10)
    assert await bus.consumers("nothing") == []


async def test_status_counts_what_is_where(bus):
    await bus.create_queue("orders", payload="text")
    await bus.post_many("orders", ["a", "b", "c", "d"])
    await bus.lease("orders")
    [dying] = await bus.lease("orders")
    await bus.nack(dying, park=True)
    [status] = await bus.status("orders")
    assert (status.ready, status.leased, status.dmq, status.delayed) == (2, 1, 1, 0)
    assert status.depth == 3
    assert status.oldest_age is not None


async def test_dead_messages_are_brought_back(bus):
    await bus.create_queue("orders", payload="text")
    iids = await bus.post_many("orders", ["a", "b", "c"])
    for message in await bus.lease("orders", amount=3):
        await bus.nack(message, error="no", park=True)
    assert {dead.iid for dead in await bus.dead()} == set(iids)
    assert len(await bus.dead(limit=2)) == 2
    assert await bus.redrive("orders", "default", iids[0]) == 1
    assert [m.data for m in await bus.consume("orders", amount=9)] == ["a"]
    assert await bus.redrive("orders") == 2
    assert sorted(m.iid for m in await bus.consume("orders", amount=9)) == sorted(iids[1:])


@pytest.mark.both_versions
async def test_maintenance_and_positions(bus):
    await bus.create_queue("orders", payload="text")
    before = await bus.positions("orders")
    await bus.post("orders", "x")
    assert await bus.positions("orders") != before
    assert all(done.queue == "orders" for done in await bus.maintain())
    await bus.maintain("orders")
    await bus.notify("orders", "nothing")


async def test_consumers_and_queues_go_when_told(bus):
    await bus.create_queue("orders")
    await bus.create_consumer("orders", "audit")
    await bus.drop_consumer("orders", "audit")
    with pytest.raises(LastConsumer):
        await bus.drop_consumer("orders", "default")
    await bus.drop_queue("orders")
    assert await bus.queues() == []


async def test_refusals_have_names(bus):
    await bus.create_queue("orders")
    with pytest.raises(QueueExists):
        await bus.create_queue("orders", payload="jsonb")
    with pytest.raises(InvalidName):
        await bus.create_queue("Orders")
    with pytest.raises(NameTooLong):
        await bus.create_queue("o" * 60)
    with pytest.raises(NameTooLong):
        await bus.consume("orders", "c" * 60)
    with pytest.raises(InvalidArgument):
        await bus.create_queue("other", payload="xml")
    with pytest.raises(QueueNotFound):
        await bus.drop_queue("nothing")
    with pytest.raises(ConsumerNotFound):
        await bus.drop_consumer("orders", "nobody")
    with pytest.raises(ConsumerExists):
        await bus.create_consumer("orders", "default")
    with pytest.raises(InvalidSelector):
        await bus.create_consumer("orders", "bad", "this is not sql")
    with pytest.raises(QueueNotFound):
        await bus.redrive("nothing")


async def test_a_database_without_the_bus_says_so(colour, empty_database):
    if colour == "sync":
        with Bus(empty_database) as bus, pytest.raises(NotInstalled, match="not installed"):
            bus.post("orders", {})
        return
    async with AsyncBus(empty_database) as bus:
        with pytest.raises(NotInstalled, match="not installed"):
            await bus.create_queue("orders")


async def test_a_queue_is_closed_and_opened(bus, sight):
    await bus.create_queue("orders", is_roles_security_model=True)
    await bus.create_queue("orders")
    model = "select is_roles_security_model from mbus.queue"
    assert sight(model) == [(True,)]
    await bus.alter_queue("orders", False)
    assert sight(model) == [(False,)]
