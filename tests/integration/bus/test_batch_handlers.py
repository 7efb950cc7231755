"""Handlers that get a list of messages, in both modes and colours."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroad.bus import AsyncBus, InvalidArgument, Park, Retry, Worker
from postroad.testing import wait_until_async
from tests.integration.bus.crew import Crew

MODES = pytest.mark.parametrize("mode", ["transaction", "lease"])


@pytest.fixture
async def orders(database, sight):
    sight("create table done (data text)")
    async with AsyncBus(database) as bus:
        await bus.create_queue("orders", payload="text")
        await bus.alter_consumer("orders", "default", backoff=timedelta(hours=1))
        yield bus


def _crew(colour, database, handle, **options):
    """Make a worker whose handler calls `handle` and then notes the messages that it returns."""
    crew = Crew(colour, database)
    insert = "insert into done select unnest(%s::text[])"

    def blocking(messages, connection=None):
        done = handle(messages)
        if connection is not None:
            connection.execute(insert, (done,))

    async def awaiting(messages, connection=None):
        done = handle(messages)
        if connection is not None:
            await connection.execute(insert, (done,))

    crew.worker.handler("orders", **options)(blocking if crew.is_blocking else awaiting)
    return crew


async def _wait_for_counts(bus, **counts):
    async def look():
        [status] = await bus.status("orders")
        return all(getattr(status, name) == count for name, count in counts.items())

    await wait_until_async(look, what=str(counts))


@MODES
async def test_a_batch_handler_gets_many_messages_in_one_call(colour, mode, database, orders):
    sizes, seen = [], []

    def handle(messages):
        sizes.append(len(messages))
        seen.extend(message.data for message in messages)
        return []

    await orders.post_many("orders", [str(n) for n in range(100)])
    async with _crew(colour, database, handle, mode=mode, batch=20):
        await _wait_for_counts(orders, depth=0)
    assert sorted(seen, key=int) == [str(n) for n in range(100)]
    assert max(sizes) == 20
    assert len(sizes) < 20


async def test_batch_handlers_that_share_a_connection_get_each_message_once(
    colour, database, orders, sight
):
    def handle(messages):
        return [message.data for message in messages]

    await orders.post_many("orders", [str(n) for n in range(100)])
    async with _crew(colour, database, handle, batch=20, concurrency=4, connections=1):
        await _wait_for_counts(orders, depth=0)
    assert sight("select count(*), count(distinct data) from done") == [(100, 100)]


@MODES
async def test_a_batch_handler_fails_single_messages(colour, mode, database, orders, sight):
    def handle(messages):
        for message in messages:
            if message.data == "3":
                messages.fail(message, ZeroDivisionError("no"))
            if message.data == "5":
                messages.fail(message, Park("nonsense"))
            if message.data == "7":
                messages.fail(message, Retry(after=3600))
        return [message.data for message in messages if message.data not in {"3", "5", "7"}]

    await orders.post_many("orders", [str(n) for n in range(10)])
    async with _crew(colour, database, handle, mode=mode, batch=10):
        await _wait_for_counts(orders, ready=0, leased=0, delayed=2, dmq=1)
    [dead] = await orders.dead()
    assert (dead.data, dead.error) == ("5", "nonsense")
    if mode == "transaction":
        done = {data for (data,) in sight("select data from done")}
        assert done == {"0", "1", "2", "4", "6", "8", "9"}


async def test_a_message_that_makes_a_transactional_batch_raise_is_found(
    colour, database, orders, sight
):
    def handle(messages):
        if any(message.data == "6" for message in messages):
            raise ZeroDivisionError("no")
        return [message.data for message in messages]

    await orders.post_many("orders", [str(n) for n in range(10)])
    async with _crew(colour, database, handle, batch=10):
        await _wait_for_counts(orders, ready=0, delayed=1)
    done = sorted(data for (data,) in sight("select data from done"))
    assert done == [str(n) for n in range(10) if n != 6]


@MODES
async def test_a_batch_handler_that_raises_retry_retries_all(colour, mode, database, orders, sight):
    def handle(messages):
        raise Retry(after=3600)

    await orders.post_many("orders", [str(n) for n in range(10)])
    async with _crew(colour, database, handle, mode=mode, batch=10):
        await _wait_for_counts(orders, ready=0, leased=0, delayed=10)


async def test_a_leased_batch_that_raises_fails_all_of_its_messages(colour, database, orders):
    def handle(messages):
        raise ZeroDivisionError("no")

    await orders.post_many("orders", [str(n) for n in range(10)])
    async with _crew(colour, database, handle, mode="lease", batch=10):
        await _wait_for_counts(orders, ready=0, leased=0, delayed=10)


def test_a_batch_of_nothing_is_refused(database):
    with pytest.raises(InvalidArgument, match="batch"):
        Worker(database).handler("orders", batch=0)(print)
