"""Request and reply through clients and workers of both colours."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest

from postroad.bus import (
    AsyncBus,
    AsyncWorker,
    Bus,
    InvalidArgument,
    QueueNotFound,
    RequestTimedOut,
    Worker,
    WrongPayload,
)
from postroad.testing import wait_until_async
from tests.integration.bus.crew import QUICK

LONG = 20
SHORT = timedelta(milliseconds=200)


@pytest.fixture
async def prices(database):
    async with AsyncBus(database) as bus:
        await bus.create_queue("prices", payload="jsonb")
        yield bus


class Answering:
    """A worker that answers with twice the number, in either colour and mode."""

    def __init__(self, colour, dsn, mode, answer):
        self.is_blocking = colour == "sync"
        self.worker = (Worker if self.is_blocking else AsyncWorker)(dsn, QUICK)

        def blocking(message, connection=None):
            return answer(message)

        async def awaiting(message, connection=None):
            return answer(message)

        handler = self.worker.handler("prices", mode=mode, prefetch=50)
        handler(blocking if self.is_blocking else awaiting)

    async def __aenter__(self):
        await self._call("start")
        await self._call("ready")
        return self

    async def __aexit__(self, *_):
        await self._call("stop")

    async def _call(self, name):
        method = getattr(self.worker, name)
        await (asyncio.to_thread(method) if self.is_blocking else method())


def double(message):
    return {"price": message.data["number"] * 2}


@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_a_handler_returns_its_answer(colour, database, prices, bus, mode):
    async with Answering(colour, database, mode, double):
        reply = await bus.request("prices", {"number": 21}, properties={"p": "1"}, timeout=LONG)
        assert reply.data == {"price": 42}
        assert reply.correlation.startswith("prices.")
        assert reply.headers["correlation"] == reply.correlation
        again = await bus.request("prices", {"number": 2}, timeout=LONG)
        assert again.data == {"price": 4}


@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_many_at_once_get_each_their_own(colour, database, prices, bus, mode):
    async with Answering(colour, database, mode, double):
        numbers = range(100 if colour == "async" else 20)
        replies = await asyncio.gather(
            *(bus.request("prices", {"number": number}, timeout=LONG) for number in numbers)
        )
    assert [reply.data["price"] for reply in replies] == [number * 2 for number in numbers]


async def test_without_an_answer_the_request_times_out_and_is_gone(bus, prices, clock):
    with pytest.raises(RequestTimedOut) as caught:
        await bus.request("prices", {"number": 1}, timeout=SHORT)
    assert caught.value.retryable
    clock.advance(timedelta(seconds=1))
    assert await prices.consume("prices") == []


async def test_a_late_answer_is_dropped_and_does_not_disturb_the_next(bus, prices, clock):
    taken = []
    while not taken:  # again on a slow machine, where the request expired before it could be taken
        asked = asyncio.create_task(bus.request("prices", {"number": 1}, timeout=SHORT))
        while not taken and not asked.done():
            taken = await prices.consume("prices")
            await asyncio.sleep(0.01)
        with pytest.raises(RequestTimedOut):
            await asked
    [late] = taken
    clock.advance(timedelta(minutes=1))
    assert await prices.reply(late, {"price": 0}) is None
    clock.reset()
    second = asyncio.create_task(bus.request("prices", {"number": 2}, timeout=LONG))
    [message] = await _taken(prices)
    assert await prices.reply(message, {"price": 7}, headers={"a": "b"}) is not None
    reply = await second
    assert (reply.data, reply.headers["a"]) == ({"price": 7}, "b")


async def _taken(bus):
    async def look():
        return await bus.consume("prices")

    return await wait_until_async(look, what="a request")


@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_an_answer_that_cannot_be_sent_is_the_handlers_failure(
    colour, database, prices, bus, mode
):
    await prices.alter_consumer("prices", "default", max_attempts=1)
    async with Answering(colour, database, mode, lambda _: object()):
        with pytest.raises(RequestTimedOut):
            await bus.request("prices", {"number": 1}, timeout=timedelta(seconds=1))

        async def is_dead():
            return await prices.dead()

        [dead] = await wait_until_async(is_dead, what="the dead message")
    assert dead.error.startswith("WrongPayload: not a JSON value")


async def test_a_handler_may_return_something_to_nobody(colour, database, prices):
    async with Answering(colour, database, "transaction", double):
        await prices.post("prices", {"number": 1})

        async def is_done():
            [status] = await prices.status("prices")
            return status.depth == 0

        await wait_until_async(is_done, what="the message is consumed")
    assert await prices.dead() == []


async def test_refusals(bus, prices, transaction):
    with pytest.raises(QueueNotFound):
        await bus.request("nothing", {})
    with pytest.raises(WrongPayload):
        await bus.request("prices", object())
    with pytest.raises(InvalidArgument):
        await bus.request("prices", {}, timeout=timedelta(0))
    await prices.post("prices", {})
    [message] = await prices.consume("prices")
    with pytest.raises(InvalidArgument):
        await prices.reply(message, {})
    async with transaction() as (_, mine):
        with pytest.raises(InvalidArgument):
            await mine.request("prices", {})


async def test_it_survives_the_loss_of_its_connection(colour, database, prices, bus, sight):
    async with Answering(colour, database, "transaction", double):
        await bus.request("prices", {"number": 1}, timeout=LONG)
        sight("select pg_terminate_backend(pid) from mbus.temporary_queue")
        for _ in range(3):
            try:
                reply = await bus.request("prices", {"number": 2}, timeout=LONG)
                break
            except psycopg.OperationalError:
                continue
        assert reply.data == {"price": 4}


def test_closing_gives_up_what_is_under_way(database):
    async def main():
        bus = AsyncBus(database)
        await bus.create_queue("prices", payload="jsonb")
        asked = asyncio.create_task(bus.request("prices", {}, timeout=LONG))

        async def is_posted():
            return await bus.peek("prices")

        await wait_until_async(is_posted, what="the request")
        await bus.close()
        with pytest.raises(RequestTimedOut):
            await asked

    asyncio.run(main())
    with Bus(database) as bus, pytest.raises(RequestTimedOut):
        bus.request("prices", {}, timeout=SHORT)
