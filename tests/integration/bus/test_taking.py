"""Taking messages: by consumer, by name, in the caller's transaction or the bus's own."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg.types import TypeInfo
from psycopg.types.hstore import register_hstore

from postroad.bus import (
    ConsumerNotFound,
    ForeignIid,
    NotTaken,
    QueueNotFound,
    TakenInTransaction,
    WrongIsolation,
)
from postroad.bus.hstore import parse


async def test_messages_come_in_order_of_posting_and_once(bus):
    await bus.create_queue("orders", payload="text")
    await bus.post_many("orders", ["a", "b", "c"])
    assert [m.data for m in await bus.consume("orders", amount=2)] == ["a", "b"]
    assert [m.data for m in await bus.consume("orders", amount=2)] == ["c"]
    assert await bus.consume("orders", amount=2) == []


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns", "Europe/Berlin"])
async def test_the_headers_are_those_that_the_server_would_send(bus, database, transaction, zone):
    await bus.create_queue("orders", payload="text")
    await bus.post_many("orders", ["plain", "stamped"], [{}, {"colour": "red"}])
    options = f"-c timezone={zone}"
    with psycopg.connect(database, options=options) as connection:
        query = b"select headers::text from mbus.consumen_orders_by_default(9)"
        expected = [parse(text) for (text,) in connection.execute(query)]
        connection.rollback()
    async with transaction(options=options) as (connection, mine):
        assert [dict(each.headers) for each in await mine.consume("orders", amount=9)] == expected
        await connection.rollback()
        leased = await mine.lease("orders", amount=9)
        assert [dict(each.headers) for each in leased] == expected


async def test_each_consumer_gets_its_own_copy_of_what_its_selector_matches(bus):
    await bus.create_queue("orders", payload="text")
    await bus.create_consumer("orders", "done", "(t.properties->'STATE')='DONE'")
    await bus.post("orders", "new", properties={"STATE": "NEW"})
    await bus.post("orders", "done", properties={"STATE": "DONE"})
    assert [m.data for m in await bus.consume("orders", amount=9)] == ["new", "done"]
    assert [m.data for m in await bus.consume("orders", "done", amount=9)] == ["done"]


async def test_a_message_is_taken_by_its_name_from_all_consumers(bus):
    await bus.create_queue("orders", payload="jsonb")
    await bus.create_consumer("orders", "audit")
    iid = await bus.post("orders", {"n": 1})
    assert await bus.peek("orders", iid)
    message = await bus.take(iid)
    assert message is not None
    assert (message.iid, message.data) == (iid, {"n": 1})
    assert await bus.take(iid) is None
    assert not await bus.peek("orders", iid)
    assert not await bus.peek("orders")
    assert await bus.consume("orders", "audit") == []


async def test_a_message_is_taken_by_its_name_from_one_consumer(bus):
    await bus.create_queue("orders")
    await bus.create_consumer("orders", "audit")
    iid = await bus.post("orders", {"n": "1"})
    message = await bus.take(iid, "audit")
    assert message is not None
    assert message.data == {"n": "1"}
    assert await bus.consume("orders", "audit") == []
    assert len(await bus.consume("orders")) == 1


async def test_rollback_gives_back_and_commit_consumes(bus, transaction):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "x")
    async with transaction() as (connection, mine):
        assert len(await mine.consume("orders")) == 1
        await connection.rollback()
    async with transaction() as (_, mine):
        assert [m.data for m in await mine.consume("orders")] == ["x"]
    assert await bus.consume("orders") == []


async def test_a_post_on_the_callers_connection_shares_its_transaction(bus, transaction):
    await bus.create_queue("orders", payload="text")
    async with transaction() as (connection, mine):
        await mine.post("orders", "never")
        await connection.rollback()
    async with transaction() as (_, mine):
        await mine.post("orders", "x")
        await mine.post_many("orders", [str(n) for n in range(1_500)])
        assert not await bus.peek("orders")
    assert len(await bus.consume("orders", amount=2_000)) == 1_501


async def test_the_callers_connection_keeps_its_own_ways(bus, transaction):
    await bus.create_queue("orders", payload="jsonb")
    async with transaction(row_factory=psycopg.rows.dict_row) as (connection, mine):
        await mine.post("orders", {"a": 1})
        assert [m.data for m in await mine.consume("orders")] == [{"a": 1}]
        cursor = await connection.execute("select 'a=>1'::hstore as h, 1 as n")
        row = cursor.fetchone() if hasattr(connection, "blocking") else await cursor.fetchone()
        assert row == {"h": '"a"=>"1"', "n": 1}


async def test_hstore_registered_by_the_caller_is_no_hindrance(bus, transaction):
    await bus.create_queue("orders")
    async with transaction() as (connection, mine):
        raw = getattr(connection, "blocking", connection)
        if raw is connection:
            info = await TypeInfo.fetch(connection, "hstore")
        else:
            info = TypeInfo.fetch(raw, "hstore")
        register_hstore(info, raw)
        await mine.post("orders", {"a": None}, {"h": "1"})
        [message] = await mine.consume("orders")
        assert message.data == {"a": None}
        assert message.headers["h"] == "1"


async def test_a_higher_isolation_is_refused(bus, transaction):
    await bus.create_queue("orders", payload="text")
    async with transaction() as (connection, mine):
        await connection.execute("set transaction isolation level repeatable read")
        with pytest.raises(WrongIsolation) as refusal:
            await mine.consume("orders")
    assert refusal.value.hint


async def test_what_does_not_exist_has_a_name(bus):
    with pytest.raises(QueueNotFound):
        await bus.consume("nothing")
    with pytest.raises(QueueNotFound):
        await bus.post("nothing", {})
    with pytest.raises(QueueNotFound):
        await bus.peek("nothing")
    with pytest.raises(QueueNotFound):
        await bus.take("nothing.1@abc")
    with pytest.raises(ForeignIid):
        await bus.take("nothing")
    await bus.create_queue("orders")
    with pytest.raises(ConsumerNotFound) as refusal:
        await bus.consume("orders", "nobody")
    assert (refusal.value.queue, refusal.value.consumer) == ("orders", "nobody")
    with pytest.raises(ConsumerNotFound):
        await bus.lease("orders", "nobody", ttl=timedelta(seconds=1))


async def test_a_rejected_message_comes_back_later_and_ends_in_the_dmq(bus, clock):
    await bus.create_queue("orders", payload="text")
    await bus.alter_consumer("orders", "default", max_attempts=2)
    iid = await bus.post("orders", "x")
    assert await bus.reject("orders", "default", iid, timedelta(minutes=1), "broken") == "delayed"
    assert await bus.consume("orders") == []
    clock.advance(timedelta(minutes=2))
    assert await bus.reject("orders", "default", iid, error="still broken") == "dmq"
    gone = await bus.get_iid("orders")
    assert await bus.reject("orders", "default", gone) == "absent"
    [dead] = await bus.dead("orders")
    assert (dead.iid, dead.error, dead.attempts, dead.data) == (iid, "still broken", 2, "x")
    assert [entry["error"] for entry in dead.history] == ["broken", "still broken"]


@pytest.mark.parametrize("payload", ["hstore", "jsonb", "text", "bytea"])
async def test_a_message_is_given_back_in_the_transaction_that_took_it(bus, transaction, payload):
    data = {"hstore": {"a": None}, "jsonb": [1.5], "text": "x", "bytea": b"\x00"}[payload]
    await bus.create_queue("orders", payload=payload)
    iid = await bus.post("orders", data, properties={"colour": "red"})
    async with transaction() as (_, own):
        [message] = await own.consume("orders")
        with pytest.raises(TakenInTransaction):
            await own.reject("orders", "default", iid)
    async with transaction() as (_, own):
        [message] = await own.consume("orders")
        assert await own.give_back(message, delay=timedelta(0), error="no paper") == "ready"
    [message] = await bus.consume("orders")
    assert (message.iid, message.data, message.attempts) == (iid, data, 1)
    assert message.properties == {"colour": "red"}
    with pytest.raises(NotTaken):
        await bus.give_back(message)
