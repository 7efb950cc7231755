"""Workers of a consumer with a cursor, in both colours."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from datetime import timedelta

import psycopg
import pytest

from postroad.bus import AsyncBus, InvalidArgument, Park
from postroad.testing import wait_until_async
from tests.integration.bus.crew import Crew, done_work, insert

MESSAGES = 100
# Takes a batch, writes, reports it, and never returns.
STUCK = """
import sys, threading
from postroad.bus import Worker
worker = Worker(sys.argv[1])
@worker.handler("orders", batch=30)
def work(messages, connection):
    connection.execute("insert into done select unnest(%s::text[])", ([m.data for m in messages],))
    print(len(messages), flush=True)
    threading.Event().wait()
worker.serve()
"""


@pytest.fixture
async def orders(database, sight):
    """A queue whose only consumer, `default`, has a cursor."""
    sight("create table done (data text)")
    async with AsyncBus(database) as bus:
        await bus.create_queue("orders", payload="text")
        await bus.create_consumer("orders", "other", contract="cursor")
        await bus.drop_consumer("orders", "default")
        await bus.create_consumer("orders", "default", contract="cursor")
        await bus.drop_consumer("orders", "other")
        await bus.alter_consumer("orders", "default", backoff=timedelta(0))
        yield bus


async def _is_drained(bus) -> bool:
    [status] = await bus.status("orders")
    return status.ready + status.delayed == 0


async def _drained(bus):
    await wait_until_async(lambda: _is_drained(bus), what="everything is handled")


def _batches(colour, database, fail=lambda messages: None):
    crew = Crew(colour, database)
    statement = "insert into done select unnest(%s::text[])"

    def good(messages):
        fail(messages)
        return [m.data for m in messages if m.id not in messages.failures]

    def blocking(messages, connection):
        connection.execute(statement, (good(messages),))

    async def awaiting(messages, connection):
        await connection.execute(statement, (good(messages),))

    crew.worker.handler("orders", batch=30, concurrency=4)(
        blocking if crew.is_blocking else awaiting
    )
    return crew


def _everything(count=MESSAGES):
    return sorted(str(n) for n in range(count))


async def test_batches_are_handled_once_and_in_order(colour, database, orders, sight):
    await orders.post_many("orders", [str(n) for n in range(MESSAGES)])
    async with _batches(colour, database):
        await _drained(orders)
    assert [data for (data,) in sight("select data from done order by ctid")] == [
        str(n) for n in range(MESSAGES)
    ]


async def test_concurrent_handlers_share_the_transaction(colour, database, orders, sight):
    await orders.post_many("orders", [str(n) for n in range(MESSAGES)])
    crew = Crew(colour, database)
    crew.on("orders", insert, concurrency=8)
    async with crew:
        await _drained(orders)
    assert done_work(sight) == _everything()


async def test_single_messages_fail(colour, database, orders, sight):
    failed = []

    def fail(messages):
        for message in messages:
            if message.data == "5":
                messages.fail(message, Park("nonsense"))
            elif message.data == "7" and not failed:
                failed.append(message.headers.get("attempts"))
                messages.fail(message, ZeroDivisionError("no"))

    await orders.post_many("orders", [str(n) for n in range(MESSAGES)])
    async with _batches(colour, database, fail):
        await _drained(orders)
    assert done_work(sight) == [each for each in _everything() if each != "5"]
    [dead] = await orders.dead()
    assert (dead.data, dead.error) == ("5", "nonsense")


async def test_a_batch_that_raises_is_searched_for_the_message(colour, database, orders, sight):
    def fail(messages):
        if any(message.data == "42" for message in messages):
            raise Park("poison") if len(messages) == 1 else ZeroDivisionError("poison")

    await orders.post_many("orders", [str(n) for n in range(MESSAGES)])
    async with _batches(colour, database, fail):
        await _drained(orders)
    assert done_work(sight) == [each for each in _everything() if each != "42"]
    assert [dead.data for dead in await orders.dead()] == ["42"]


async def test_a_handler_that_raises_fails_its_message_alone(colour, database, orders, sight):
    def script(message):
        if message.data == "42":
            raise Park("poison")
        return insert(message)

    await orders.post_many("orders", [str(n) for n in range(MESSAGES)])
    crew = Crew(colour, database)
    crew.on("orders", script, concurrency=4)
    async with crew:
        await _drained(orders)
    assert done_work(sight) == [each for each in _everything() if each != "42"]
    assert [dead.data for dead in await orders.dead()] == ["42"]


async def test_the_batch_of_a_killed_worker_is_handled_by_another(colour, database, orders, sight):
    await orders.post_many("orders", [str(n) for n in range(MESSAGES)])
    stuck = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUCK, database, stdout=subprocess.PIPE
    )
    try:
        assert stuck.stdout is not None
        assert await stuck.stdout.readline() == b"30\n"
        async with _batches(colour, database):
            # It stands by: one transaction at a time takes.
            [status] = await orders.status("orders")
            assert status.ready == MESSAGES
            stuck.kill()
            await _drained(orders)
    finally:
        if stuck.returncode is None:
            stuck.kill()
        await stuck.communicate()
    assert done_work(sight) == _everything()


async def test_nothing_is_passed_while_posts_overlap_and_roll_back(colour, database, orders, sight):
    committed: list[str] = []

    def post(number: int) -> None:
        chance = random.Random(number)
        waiting: list[str] = []
        with psycopg.connect(database) as connection:
            for step in range(60):
                waiting.append(f"{number}.{step}")
                connection.execute("select mbus.post_orders(%s::text)", (waiting[-1],))
                draw = chance.random()
                if draw < 0.2:
                    connection.rollback()
                    waiting.clear()
                elif draw < 0.6:
                    connection.commit()
                    committed.extend(waiting)
                    waiting.clear()
            connection.rollback()

    async with _batches(colour, database), _batches(colour, database):
        await asyncio.gather(*(asyncio.to_thread(post, number) for number in range(6)))
        await _drained(orders)
    assert committed
    assert done_work(sight) == sorted(committed)


async def test_a_cursor_has_no_leases(colour, database, orders):
    crew = Crew(colour, database)
    crew.on("orders", lambda message: None, mode="lease")
    with pytest.raises(InvalidArgument, match="cursor"):
        async with crew:
            pass
    with pytest.raises(InvalidArgument):
        await crew.stop()
