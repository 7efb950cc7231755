"""The trace of a request is found again behind every hop."""

from __future__ import annotations

import psycopg
import pytest

from postroad import trace
from postroad.bus import AsyncBus, AsyncWorker, Bus, LeasedMessage, Message, Worker, WorkerSettings
from postroad.testing import wait_until, wait_until_async

LINE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = LINE.split("-")[1]


def trace_of(message: Message) -> str:
    return (message.headers.get("traceparent") or "--").split("-")[1]


def test_what_is_posted_inside_a_trace_carries_it(database: str) -> None:
    with Bus(database) as bus:
        bus.create_queue("orders", payload="text")
        with trace.following(LINE):
            bus.post("orders", "one")
            bus.post_many("orders", ["two", "three"], headers=[{"a": "1"}, {"a": "2"}])
        bus.post("orders", "four")
        messages = bus.consume("orders", amount=4)
    assert [trace_of(message) for message in messages] == [TRACE, TRACE, TRACE, ""]
    assert len({message.headers.get("traceparent") for message in messages}) == 4


def test_a_line_that_is_none_is_not_followed() -> None:
    with trace.following("00-nonsense"):
        assert trace.current() is None


@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_a_handler_that_awaits_posts_on_the_trace_of_its_message(
    database: str, mode: str
) -> None:
    async with AsyncBus(database) as bus:
        await bus.create_queue("orders", payload="text")
        await bus.create_queue("bills", payload="text")
        worker = AsyncWorker(database, WorkerSettings())

        if mode == "transaction":

            @worker.handler("orders")
            async def bill(message: Message, connection: psycopg.AsyncConnection) -> None:
                await bus.using(connection).post("bills", message.data)
        else:

            @worker.handler("orders", mode="lease")
            async def bill_leased(message: LeasedMessage) -> None:
                await bus.post("bills", message.data)

        with trace.following(LINE):
            await bus.post("orders", "one")
        async with worker:
            found = await wait_until_async(lambda: bus.consume("bills"), what="the bill is there")
    assert [trace_of(message) for message in found] == [TRACE]


def test_a_handler_that_blocks_posts_on_the_trace_of_its_message(database: str) -> None:
    with Bus(database) as bus:
        bus.create_queue("orders", payload="text")
        bus.create_queue("bills", payload="text")
        worker = Worker(database, WorkerSettings())

        @worker.handler("orders")
        def bill(message: Message, connection: psycopg.Connection) -> None:
            Bus(connection).post("bills", message.data)

        with trace.following(LINE):
            bus.post("orders", "one")
        with worker:
            found = wait_until(lambda: bus.consume("bills"), what="the bill is there")
    assert [trace_of(message) for message in found] == [TRACE]
