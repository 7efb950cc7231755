"""Triggers, temporary queues and temporary consumers from Python, in both colours."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroad.bus import (
    InvalidArgument,
    QueueNotFound,
    RoleMissing,
    TriggerExists,
    TriggerLoop,
    TriggerNotFound,
    Unsupported,
)
from postroad.testing import wait_until_async


async def test_a_trigger_copies_until_it_is_dropped(bus):
    await bus.create_queue("orders", payload="jsonb")
    await bus.create_queue("large", payload="jsonb")
    await bus.create_trigger("orders", "large", "(t.data->>'amount')::int > 100")
    for amount in (50, 500):
        await bus.post("orders", {"amount": amount})
    assert [m.data for m in await bus.consume("large", amount=9)] == [{"amount": 500}]
    with pytest.raises(TriggerExists):
        await bus.create_trigger("orders", "large")
    with pytest.raises(TriggerLoop):
        await bus.create_trigger("large", "orders")
    await bus.drop_trigger("orders", "large")
    await bus.post("orders", {"amount": 501})
    assert await bus.consume("large") == []
    with pytest.raises(TriggerNotFound):
        await bus.drop_trigger("orders", "large")


@pytest.mark.parametrize("payload", ["hstore", "jsonb", "text", "bytea"])
async def test_a_temporary_consumer_gets_copies_of_what_comes(bus, transaction, payload):
    data = {"hstore": {"n": "1"}, "jsonb": [1], "text": "one", "bytea": b"\x01"}[payload]
    await bus.create_queue("orders", payload=payload)
    async with transaction(autocommit=True) as (_, inside):
        name = await inside.create_temporary_consumer("orders", "t.properties ? 'wanted'")
        await bus.post("orders", data)
        await bus.post("orders", data, properties={"wanted": "yes"})
        [message] = await inside.consume_temporary(name, 9, wait=timedelta(seconds=20))
        assert (message.data, message.properties) == (data, {"wanted": "yes"})
        assert await inside.consume_temporary(name) == []
    assert len(await bus.consume("orders", amount=9)) == 2


async def test_a_temporary_queue_is_its_sessions_own(bus, transaction):
    async with transaction(autocommit=True) as (connection, inside):
        name = await inside.create_temporary_queue("text")
        await connection.execute("select mbus.post(%s, 'hello'::text)", (name,))
        [message] = await inside.consume_temporary(name)
        assert message.data == "hello"
        with pytest.raises(Unsupported):
            await inside.consume_temporary(name, payload="jsonb")
        async with transaction(autocommit=True) as (_, stranger):
            with pytest.raises(RoleMissing):
                await stranger.consume_temporary(name, payload="text")
    async with transaction(autocommit=True) as (_, later):

        async def is_gone():
            # The server ends a session a moment after its client has left.
            assert await later.clear_tempq() >= 0
            with pytest.raises((QueueNotFound, RoleMissing)) as refusal:
                await later.consume_temporary(name, payload="text")
            return refusal.errisinstance(QueueNotFound)

        await wait_until_async(is_gone, what="the queue goes with its session")


async def test_a_bus_without_a_session_of_its_own_refuses(bus):
    await bus.create_queue("orders")
    for call in (
        bus.create_temporary_queue,
        lambda: bus.create_temporary_consumer("orders"),
        lambda: bus.consume_temporary("temp.0123456789abcdef"),
    ):
        with pytest.raises(InvalidArgument, match="session"):
            await call()


async def test_an_unknown_payload_is_refused(transaction):
    async with transaction(autocommit=True) as (_, inside):
        with pytest.raises(InvalidArgument, match="xml"):
            await inside.create_temporary_queue("xml")
