"""Leases: held, extended, lost, given back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroad.bus import InvalidArgument, Lease, LeaseLost

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def orders(bus):
    await bus.create_queue("orders", payload="jsonb")
    return bus


async def test_an_acked_message_is_gone(orders):
    iid = await orders.post("orders", {"n": 1}, {"h": "1"})
    [message] = await orders.lease("orders", ttl=MINUTE)
    assert (message.iid, message.data, message.headers["h"]) == (iid, {"n": 1}, "1")
    assert (message.attempt, message.attempts) == (1, 0)
    assert await orders.lease("orders", ttl=MINUTE) == []
    await orders.ack(message)
    with pytest.raises(LeaseLost):
        await orders.ack(message)


async def test_a_lease_that_ended_is_lost_to_its_holder(orders, clock):
    await orders.post("orders", 1)
    [message] = await orders.lease("orders", ttl=MINUTE)
    clock.advance(2 * MINUTE)
    [again] = await orders.lease("orders", ttl=MINUTE)
    assert again.iid == message.iid
    assert again.token != message.token
    assert (again.attempt, again.attempts) == (2, 1)
    for answer in (orders.ack, orders.nack, orders.extend):
        with pytest.raises(LeaseLost):
            await answer(message)
    await orders.ack(again)


async def test_an_extended_lease_outlives_its_first_end(orders, clock):
    await orders.post("orders", 1)
    [message] = await orders.lease("orders", ttl=MINUTE)
    until = await orders.extend_lease(message, 10 * MINUTE)
    assert until > message.leased_until
    clock.advance(5 * MINUTE)
    await orders.ack(Lease(message.iid, message.token))


async def test_many_are_answered_at_once_and_the_lost_are_named(orders, clock):
    await orders.post_many("orders", [1, 2, 3])
    lost = await orders.lease("orders", amount=1, ttl=MINUTE)
    kept = await orders.lease("orders", amount=2, ttl=10 * MINUTE)
    clock.advance(2 * MINUTE)
    assert await orders.extend_many([*lost, *kept], 10 * MINUTE) == [lost[0].iid]
    assert await orders.ack_many([*lost, *kept]) == [lost[0].iid]
    assert await orders.ack_many([]) == []


async def test_a_nacked_message_waits_comes_back_and_dies(orders, clock):
    await orders.alter_consumer("orders", "default", max_attempts=2, backoff=MINUTE)
    await orders.post("orders", 1)
    [message] = await orders.lease("orders")
    assert await orders.nack(message, timedelta(0)) == "ready"
    [message] = await orders.lease("orders")
    assert message.attempt == 2
    assert await orders.nack(message, error="no") == "dmq"
    assert await orders.redrive("orders") == 1
    [message] = await orders.lease("orders")
    assert await orders.nack(message) == "delayed"
    assert await orders.lease("orders") == []


async def test_a_parked_message_is_dead_at_once(orders):
    await orders.post("orders", 1)
    [message] = await orders.lease("orders")
    assert await orders.nack(message, error="nonsense", dead_letter=True) == "dmq"
    [dead] = await orders.dead("orders", "default")
    assert dead.error == "nonsense"


async def test_a_lease_without_length_is_refused(orders):
    with pytest.raises(InvalidArgument):
        await orders.lease("orders", ttl=timedelta(0))
    with pytest.raises(InvalidArgument):
        await orders.lease("orders", amount=-1)
