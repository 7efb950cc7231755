"""Many handlers in transaction mode share few connections, and a transaction each."""

from __future__ import annotations

import asyncio
import threading

import pytest

from postroad.bus import (
    AsyncBus,
    AsyncWorker,
)
from postroad.testing import wait_until_async
from tests.integration.bus.crew import Crew, done_work, finished, insert


@pytest.fixture
async def orders(database, sight):
    sight("create table done (data text)")
    async with AsyncBus(database) as bus:
        await bus.create_queue("orders", payload="text")
        yield bus


def _sessions(sight):
    [(count,)] = sight(
        "select count(*) from pg_stat_activity"
        " where application_name = 'postroad worker' and datname = current_database()"
    )
    return count


async def test_many_handlers_share_few_connections(colour, database, orders, sight):
    here, all_here, sessions = [], threading.Event(), []

    def script(message):
        here.append(message.data)
        if len(here) == 20:
            sessions.append(_sessions(sight))
            all_here.set()
        yield all_here
        yield from insert(message)

    await orders.post_many("orders", [str(n) for n in range(20)])
    crew = Crew(colour, database)
    crew.on("orders", script, concurrency=20, connections=2)
    async with crew:
        await finished(orders, sight, [str(n) for n in range(20)])
    assert sessions == [2]


async def test_a_handler_has_a_shared_transaction_to_itself_from_its_first_statement(
    colour, database, orders, sight
):
    def script(message):
        yield "savepoint mine"
        yield "insert into done values ('never')"
        yield "rollback to savepoint mine"
        yield from insert(message)

    await orders.post_many("orders", [str(n) for n in range(100)])
    crew = Crew(colour, database)
    crew.on("orders", script, concurrency=10, connections=1)
    async with crew:
        await finished(orders, sight, [str(n) for n in range(100)])


async def test_slow_handlers_get_a_transaction_each(colour, database, orders, sight):
    gate = threading.Event()

    def script(message):
        yield gate
        yield from insert(message)

    crew = Crew(colour, database)
    crew.on("orders", script, concurrency=8)
    await orders.post_many("orders", [str(n) for n in range(60)])
    try:
        async with crew:

            async def are_open():
                return await asyncio.to_thread(_sessions, sight) == 8

            await wait_until_async(are_open, what="a connection per handler")
            gate.set()
            await finished(orders, sight, [str(n) for n in range(60)])
    finally:
        gate.set()


async def test_handlers_that_wait_for_each_other_outside_of_the_database_are_untangled(
    colour, database, orders, sight, monkeypatch
):
    """One keeps the transaction and waits for a lock; its owner waits for the transaction."""
    monkeypatch.setattr("postroad.bus.shared_connection.MAX_WAIT_SECONDS", 0.1)
    tries = []
    crew = Crew(colour, database)
    insert = "insert into done values (%s)"
    if crew.is_blocking:
        lock, has_transaction, has_lock = threading.Lock(), threading.Event(), threading.Event()

        def handler(message, connection):
            tries.append(message.attempts)
            if message.data == "first":
                connection.execute(insert, ("first",))
                has_transaction.set()
                has_lock.wait()
                with lock:
                    return
            has_transaction.wait()
            with lock:
                has_lock.set()
                connection.execute(insert, ("other",))
    else:
        alock, ahas_transaction, ahas_lock = asyncio.Lock(), asyncio.Event(), asyncio.Event()

        async def handler(message, connection):
            tries.append(message.attempts)
            if message.data == "first":
                await connection.execute(insert, ("first",))
                ahas_transaction.set()
                await ahas_lock.wait()
                async with alock:
                    return
            await ahas_transaction.wait()
            async with alock:
                ahas_lock.set()
                await connection.execute(insert, ("other",))

    crew.worker.handler("orders", concurrency=2, connections=1)(handler)
    await orders.post_many("orders", ["first", "other"])
    async with crew:
        await finished(orders, sight, ["first", "other"])
    assert tries == [0, 0, 0, 0]


async def test_a_statement_that_outlives_its_handler_does_not_keep_the_transaction(
    database, orders, sight
):
    async def fail():
        await asyncio.sleep(0)
        raise ValueError

    has_begun = asyncio.Event()
    worker = AsyncWorker(database)

    @worker.handler("orders", concurrency=10, connections=1)
    async def handle(message, connection):
        if message.data == "left":
            await has_begun.wait()
            # The statement waits for the transaction when its handler fails.
            await asyncio.gather(connection.execute("select 1"), fail())
        await connection.execute("insert into done values (%s)", (message.data,))
        if message.data == "first":
            has_begun.set()
            await connection.execute("select pg_sleep(0.2)")

    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post_many("orders", ["first", "left"])
    async with worker:
        await wait_until_async(orders.dead, what="a dead message")
        await orders.post_many("orders", ["later"])
        await finished(orders, sight, ["first", "later"])
        worker.request_stop()


async def test_handlers_that_follow_each_other_in_a_transaction_are_not_in_a_deadlock(
    colour, database, orders, sight, monkeypatch
):
    monkeypatch.setattr("postroad.bus.shared_connection.MAX_WAIT_SECONDS", 0.7)
    tries = []

    def script(message):
        tries.append(message.data)
        yield from insert(message)
        yield "select pg_sleep(0.2)"

    await orders.post_many("orders", [str(n) for n in range(8)])
    crew = Crew(colour, database)
    crew.on("orders", script, concurrency=10, connections=1)
    async with crew:
        await finished(orders, sight, [str(n) for n in range(8)])
    assert sorted(tries) == [str(n) for n in range(8)]


async def test_a_finished_batch_does_not_wait_for_the_handlers_of_another(
    colour, database, orders, sight, monkeypatch
):
    # Both batches have a runner before one of them asks for more.
    monkeypatch.setattr("postroad.bus.transaction_loop.QUICK_SECONDS", 1.0)
    started, both, gate, slow = threading.Event(), threading.Event(), threading.Event(), []

    def script(message):
        if message.data.startswith("slow"):
            started.set()
            slow.append(message.data)
            if len(slow) == 2:
                both.set()
            yield gate
        else:
            yield both
            # Long enough that the batch asks for further runners, which find nothing to do.
            yield "select pg_sleep(1.2)"
        yield from insert(message)

    crew = Crew(colour, database)
    crew.on("orders", script, concurrency=3, connections=2, prefetch=3)
    try:
        async with crew:
            await orders.post_many("orders", ["slow 1", "slow 2", "slow 3"])
            await asyncio.to_thread(started.wait, 20)
            await orders.post_many("orders", ["quick 1", "quick 2"])

            async def are_done():
                return done_work(sight) == ["quick 1", "quick 2"]

            await wait_until_async(are_done, what="the quick ones are committed")
            gate.set()
            await finished(orders, sight, ["slow 1", "slow 2", "slow 3", "quick 1", "quick 2"])
    finally:
        gate.set()
