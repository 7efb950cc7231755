"""A message that a client cannot decode is dead-lettered; the others are delivered."""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import pytest

from postroad.blocking import finish
from postroad.bus import AsyncBus, Bus, BusError, rows
from postroad.bus.calls import Call
from postroad.bus.decoding import FIRST_MOMENT, LAST_MOMENT, Undecodable
from postroad.bus.hstore import dump
from postroad.bus.session import run_async
from postroad.testing import wait_until_async
from tests.integration.bus.crew import Crew

# PostgreSQL stores it; the JSON reader of Python has a limit of its own for each.
HOSTILE = {
    "deep": "[" * 5_000 + "]" * 5_000,
    "digits": "9" * 5_000,
}

REPLY_HEADERS = ("reply_to", "correlation", "reply_by")
TIMES = ("infinity", "-infinity", "12000-01-01", "0044-03-15 BC")


@pytest.fixture
async def orders(database):
    async with AsyncBus(database) as bus:
        await bus.create_queue("orders", payload="jsonb")
        yield bus


def _post(sight, text):
    sight("set max_stack_depth = '6MB'")
    [(iid,)] = sight("select mbus.post_orders(data => %s::jsonb)", text)
    return iid


@pytest.mark.parametrize("mode", ["lease", "transaction"])
@pytest.mark.parametrize("hostile", HOSTILE)
async def test_a_worker_goes_on_after_a_message_that_it_cannot_decode(
    colour, mode, hostile, database, orders, sight
):
    seen = []
    iids = [_post(sight, HOSTILE[hostile]) for _ in range(2)]
    await orders.post_many("orders", [1, 2, 3])
    crew = Crew(colour, database)
    crew.on("orders", lambda message: seen.append(message.data), mode=mode)
    async with crew:

        async def are_dead():
            return len(sight("select iid from mbus.dead")) == 2

        await wait_until_async(are_dead, what="both are dead-lettered")

        async def are_seen():
            return sorted(seen) == [1, 2, 3]

        await wait_until_async(are_seen, what="the others are handled")
        assert crew.worker.is_running
    dead = sight("select iid, error from mbus.dead")
    assert sorted(iid for iid, _ in dead) == sorted(iids)
    assert all("cannot decode" in error for _, error in dead)


@pytest.mark.parametrize("verb", ["consume", "lease"])
async def test_taking_leaves_out_what_cannot_be_decoded(verb, database, orders, sight):
    iid = _post(sight, HOSTILE["digits"])
    await orders.post_many("orders", [1, 2])
    messages = await getattr(orders, verb)("orders", amount=10)
    assert [message.data for message in messages] == [1, 2]
    assert sight("select iid from mbus.dead") == [(iid,)]


def test_taking_in_the_callers_transaction_dead_letters_with_it(database, sight):
    with Bus(database) as bus, psycopg.connect(database) as connection:
        bus.create_queue("orders", payload="jsonb")
        iid = _post(sight, HOSTILE["digits"])
        bus.post("orders", 1)
        [message] = bus.using(connection).consume("orders", amount=10)
        assert message.data == 1
        assert sight("select iid from mbus.dead") == []
        connection.commit()
    assert sight("select iid from mbus.dead") == [(iid,)]


def test_a_message_taken_from_all_consumers_stays_when_it_cannot_be_decoded(database, sight):
    with Bus(database) as bus:
        bus.create_queue("orders", payload="jsonb")
        iid = _post(sight, HOSTILE["digits"])
        with pytest.raises(Undecodable):
            bus.take(iid)
        assert bus.peek("orders", iid)
        assert bus.take(iid, "default") is None
    assert sight("select iid from mbus.dead") == [(iid,)]


async def test_a_subscription_goes_on_after_a_message_that_it_cannot_decode(orders, sight):
    _post(sight, HOSTILE["deep"])
    await orders.post("orders", 1)
    async with asyncio.timeout(30):
        async with orders.subscribe("orders") as messages:
            async for message in messages:
                assert message.data == 1
                break


@pytest.mark.parametrize("moment", TIMES)
async def test_a_time_that_python_cannot_represent_is_the_nearest_one(moment, database):
    call = Call("select %s::timestamptz", (moment,), rows.value)
    is_past = moment in {"-infinity", "0044-03-15 BC"}
    nearest = FIRST_MOMENT if is_past else LAST_MOMENT
    with psycopg.connect(database) as connection:
        assert finish(run_async(connection, call)) == nearest
    async with await psycopg.AsyncConnection.connect(database) as connection:
        assert await run_async(connection, call) == nearest


async def test_an_answer_that_cannot_be_decoded_fails_its_request_alone(database, orders, sight):
    async def answer():
        async with AsyncBus(database) as bus, bus.subscribe("orders") as messages:
            async for message in messages:
                if message.data == "bad":
                    asked = {name: message.headers.get(name) for name in REPLY_HEADERS}
                    sight(
                        "select mbus.replyn_jsonb(requests => array[%s::hstore],"
                        " data => array[%s::jsonb])",
                        dump(asked),
                        HOSTILE["digits"],
                    )
                else:
                    await bus.reply(message, "fine")

    answering = asyncio.create_task(answer())
    try:
        bad, good = await asyncio.gather(
            orders.request("orders", "bad", timeout=20),
            orders.request("orders", "good", timeout=20),
            return_exceptions=True,
        )
        assert isinstance(bad, Undecodable)
        assert good.data == "fine"
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


HOSTILE_HEADERS = [
    {"reply_to": "temp.nobody", "reply_by": "garbage", "correlation": "x"},
    {"reply_to": "temp.nobody", "reply_by": "infinity", "correlation": "\\"},
    {"reply_to": "temp.", "correlation": "'\"=>,"},
    {"traceparent": "zz", "attempts": "many", "last_error": "\\x00"},
]


@pytest.mark.parametrize("mode", ["lease", "transaction"])
async def test_hostile_headers_cost_at_most_their_own_message(
    colour, mode, database, orders, sight
):
    seen = []
    crew = Crew(colour, database)
    if crew.is_blocking:

        def handler(message, connection=None):
            seen.append(message.data)
            return [message.attempts, 1]
    else:

        async def handler(message, connection=None):
            seen.append(message.data)
            return [message.attempts, 1]

    crew.worker.handler("orders", mode=mode)(handler)
    await orders.alter_consumer("orders", "default", max_attempts=1)
    for headers in HOSTILE_HEADERS:
        with contextlib.suppress(BusError):
            await orders.post("orders", "hostile", headers=headers)
    await orders.post("orders", "last")
    async with crew:

        async def is_done():
            [status] = await orders.status("orders")
            return "last" in seen and status.ready + status.leased + status.delayed == 0

        await wait_until_async(is_done, what="every message is handled or dead")
        assert crew.worker.is_running


@pytest.mark.parametrize("payload", ["hstore", "jsonb", "text", "bytea"])
@pytest.mark.parametrize("mode", ["lease", "transaction"])
async def test_hostile_values_of_every_payload_are_handled(colour, mode, payload, database, sight):
    values = {
        "hstore": [
            "",
            '""=>NULL',
            '"a\\"b"=>"c\\\\d"',
            '"\n"=>"\u2028"',
            '"a"=>"' + "x" * 200_000 + '"',
        ],
        "jsonb": ["null", "[]", '""', "1e400", "-0.0", '{"":{"":[]}}', '"' + "x" * 200_000 + '"'],
        "text": ["", "\u2028\ufeff", "\\N", "\U0010ffff", "x" * 200_000],
        "bytea": ["\\x", "\\x00", "\\xff" + "00" * 100_000],
    }[payload]
    async with AsyncBus(database) as bus:
        await bus.create_queue("odd", payload=payload)
        for value in values:
            sight(f"select mbus.post_odd(data => %s::{payload})", value)
        seen = []
        crew = Crew(colour, database)
        crew.on("odd", lambda message: seen.append(message.data), mode=mode)
        async with crew:

            async def are_seen():
                return len(seen) == len(values)

            await wait_until_async(are_seen, what="all values are handled")
        assert await bus.dead() == []
