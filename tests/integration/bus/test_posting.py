"""Posting: what goes in comes out, in order, in the right transaction."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from postroad.bus import DuplicateIid, ForeignIid, InvalidArgument, WrongPayload
from postroad.testing import wait_until

VALUES = {
    "hstore": [{"a": "1", 'q"\\': None, "ж": "a=>b, c"}, {}],
    "jsonb": [{"a": [1, None, 'ж\\"']}, "text", None, [True, 1.5]],
    "text": ["", 'line\nbreak, {"x"} \\', "NULL"],
    "bytea": [b"", bytes(range(256))],
}


@pytest.mark.parametrize("payload", VALUES)
async def test_every_payload_comes_out_as_it_went_in(bus, payload):
    await bus.create_queue("orders", payload=payload)
    for value in VALUES[payload]:
        await bus.post("orders", value)
    await bus.post_many("orders", VALUES[payload])
    received = await bus.consume("orders", amount=100)
    assert [message.data for message in received] == VALUES[payload] * 2


async def test_headers_and_properties_arrive_beside_those_of_the_bus(bus):
    await bus.create_queue("orders")
    iid = await bus.post("orders", {"a": "1"}, {"trace": 'x"y'}, {"STATE": "DONE"})
    [message] = await bus.consume("orders")
    assert message.iid == iid
    assert message.headers["trace"] == 'x"y'
    assert {"seenby", "source_db", "destination", "enqueue_time"} <= message.headers.keys()
    assert message.properties == {"STATE": "DONE"}
    assert message.added.tzinfo is not None
    assert message.attempts == 0


async def test_many_messages_keep_their_order_and_their_own_headers(bus):
    await bus.create_queue("orders", payload="text")
    data = [str(number) for number in range(2_500)]
    headers = [{"number": number} for number in data]
    iids = await bus.post_many("orders", iter(data), headers, {"kind": "all"})
    received = await bus.consume("orders", amount=5_000)
    assert [message.iid for message in received] == iids
    assert [message.data for message in received] == data
    assert [message.headers["number"] for message in received] == data
    assert {message.properties["kind"] for message in received} == {"all"}


async def test_posting_nothing_posts_nothing(bus):
    await bus.create_queue("orders")
    assert await bus.post_many("orders", []) == []


async def test_many_messages_are_posted_all_or_none(bus, transaction):
    await bus.create_queue("orders", payload="jsonb")
    bad = [{"n": 1}] * 1_000 + [{"text": "\x00"}]
    with pytest.raises(WrongPayload, match="u0000"):
        await bus.post_many("orders", bad)
    assert not await bus.peek("orders")


async def test_a_reserved_iid_is_honoured_once(bus):
    await bus.create_queue("orders")
    iid = await bus.get_iid("orders")
    assert await bus.post("orders", {"a": "1"}, iid=iid) == iid
    with pytest.raises(DuplicateIid):
        await bus.post("orders", {"a": "1"}, iid=iid)
    with pytest.raises(ForeignIid):
        await bus.post("orders", {"a": "1"}, iid="nonsense")


async def test_a_delayed_message_waits_for_its_time(bus, clock):
    await bus.create_queue("orders", payload="text")
    moment = datetime.now(UTC) + timedelta(hours=1)
    await bus.post("orders", "later", delayed_until=moment)
    assert await bus.consume("orders") == []
    clock.advance(timedelta(hours=1, seconds=1))
    [message] = await bus.consume("orders")
    assert message.data == "later"
    assert message.delayed_until == moment


async def test_an_expired_message_is_not_delivered(bus, clock):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "soon gone", expires=datetime.now(UTC) + timedelta(hours=1))
    clock.advance(timedelta(hours=2))
    assert await bus.consume("orders") == []


async def test_a_naive_moment_is_refused(bus):
    await bus.create_queue("orders", payload="text")
    naive = datetime(2030, 1, 1)  # noqa: DTZ001
    with pytest.raises(InvalidArgument, match="time zone"):
        await bus.post("orders", "x", delayed_until=naive)
    with pytest.raises(InvalidArgument, match="time zone"):
        await bus.post_many("orders", ["x"], expires=naive)


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ("hstore", "text"),
        ("hstore", {"a": 1}),
        ("hstore", {1: "a"}),
        ("jsonb", {"a": object()}),
        ("jsonb", float("nan")),
        ("text", b"bytes"),
        ("text", None),
        ("text", "half\0"),
        ("text", "half \ud83d"),
        ("hstore", {"a": "\0"}),
        ("jsonb", ["half \ud83d"]),
        ("bytea", "text"),
    ],
)
async def test_the_wrong_payload_is_refused_before_anything_is_sent(bus, payload, value):
    await bus.create_queue("orders", payload=payload)
    with pytest.raises(WrongPayload) as refusal:
        await bus.post("orders", value)
    assert refusal.value.hint
    assert refusal.value.__cause__ is None or not hasattr(refusal.value.__cause__, "sqlstate")
    with pytest.raises(WrongPayload):
        await bus.post_many("orders", [value])
    assert not await bus.peek("orders")


async def test_json_that_the_server_cannot_store_is_refused(bus):
    await bus.create_queue("orders", payload="jsonb")
    for value in ({"a": "\0"}, {"\0": 1}):
        with pytest.raises(WrongPayload, match="u0000"):
            await bus.post("orders", value)
        with pytest.raises(WrongPayload, match="u0000"):
            await bus.post_many("orders", [value])
    await bus.post("orders", "a backslash: \\u0000")
    assert [message.data for message in await bus.consume("orders")] == ["a backslash: \\u0000"]


async def test_headers_that_are_not_text_are_refused(bus):
    await bus.create_queue("orders", payload="text")
    with pytest.raises(InvalidArgument, match="NUL"):
        await bus.post("orders", "x", {"a": "\0"})
    with pytest.raises(InvalidArgument, match="headers"):
        await bus.post("orders", "x", {"retries": 3})
    with pytest.raises(InvalidArgument, match="1 headers for 2 messages"):
        await bus.post_many("orders", ["x", "y"], [{"a": "b"}])


async def test_the_same_dedup_key_returns_the_first_iid(bus):
    await bus.create_queue("orders", payload="text")
    first = await bus.post("orders", "x", {"dedup_key": "k"})
    assert await bus.post("orders", "y", {"dedup_key": "k"}) == first
    assert len(await bus.consume("orders", amount=10)) == 1


async def test_a_queue_made_anew_with_another_payload_is_noticed(bus):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "x")
    await bus.drop_queue("orders")
    await bus.create_queue("orders", payload="jsonb")
    await bus.post("orders", {"now": "json"})
    [message] = await bus.consume("orders")
    assert message.data == {"now": "json"}


async def test_a_call_that_waited_for_a_new_consumer_succeeds(bus, database, connect):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "before")
    owner, observer = connect(database), connect(database, autocommit=True)
    owner.execute("select mbus.create_consumer('orders', 'second')")
    posting = asyncio.create_task(_post(bus, "meanwhile"))
    await asyncio.to_thread(_wait_for_a_waiter, observer)
    owner.commit()
    await posting
    assert [m.data for m in await bus.consume("orders", amount=9)] == ["before", "meanwhile"]
    assert [m.data for m in await bus.consume("orders", "second", 9)] == ["meanwhile"]


async def test_a_take_that_waited_for_a_new_consumer_succeeds(bus, database, connect):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "before")
    assert await bus.consume("orders", amount=0) == []
    owner, observer = connect(database), connect(database, autocommit=True)
    owner.execute("select mbus.create_consumer('orders', 'second')")
    taking = asyncio.create_task(_consume(bus))
    await asyncio.to_thread(_wait_for_a_waiter, observer)
    owner.commit()
    assert [message.data for message in await taking] == ["before"]


async def _consume(bus):
    return await bus.consume("orders", amount=9)


async def _post(bus, data):
    await bus.post("orders", data)


def _wait_for_a_waiter(observer):
    wait_until(
        lambda: (
            observer.execute(
                "select from pg_locks l join pg_database d on d.oid = l.database"
                " where d.datname = current_database() and not l.granted"
            ).fetchone()
            is not None
        ),
        what="the post waits for the table",
    )
