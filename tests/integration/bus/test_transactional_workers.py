"""Workers in transaction mode: the work and the message are committed together, or neither."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import timedelta

import psycopg
import pytest

from postroad.blocking import finish
from postroad.bus import (
    AsyncBus,
    AsyncWorker,
    ConsumerNotFound,
    InvalidArgument,
    Park,
    Retry,
    Worker,
    WorkerSettings,
)
from postroad.bus.batch import was_committed
from postroad.bus.session import run_async
from postroad.bus.transaction_loop import TransactionLoops
from postroad.testing import wait_until_async
from tests.integration.bus.crew import Crew, done_work, finished, insert

# Handlers that run one after the other, and handlers that share a transaction.
ALONE_AND_SHARED = pytest.mark.parametrize(
    "shape", [{}, {"concurrency": 10, "connections": 1}], ids=["alone", "shared"]
)


@pytest.fixture
async def orders(database, sight):
    sight("create table done (data text)")
    async with AsyncBus(database) as bus:
        await bus.create_queue("orders", payload="text")
        yield bus


async def test_work_is_committed_with_its_message(colour, database, orders, sight):
    crew = Crew(colour, database)
    crew.on("orders", insert)
    async with crew:
        await orders.post_many("orders", [str(n) for n in range(100)])
        await finished(orders, sight, [str(n) for n in range(100)])


@ALONE_AND_SHARED
async def test_only_the_failing_message_is_rejected(colour, shape, database, orders, sight):
    def script(message):
        yield from insert(message)
        if message.data in {"3", "7"}:
            raise ZeroDivisionError(f"no {message.data}")

    await orders.alter_consumer("orders", "default", backoff=timedelta(hours=1))
    await orders.post_many("orders", [str(n) for n in range(10)])
    crew = Crew(colour, database)
    crew.on("orders", script, prefetch=10, **shape)
    async with crew:
        await finished(orders, sight, [str(n) for n in range(10) if n not in {3, 7}])
        [status] = await orders.status("orders")
        assert status.delayed == 2


async def test_a_failing_message_is_retried_until_it_is_dead(colour, database, orders, sight):
    attempts = []

    def script(message):
        attempts.append(message.attempts)
        raise ZeroDivisionError("never")

    await orders.alter_consumer(
        "orders", "default", max_attempts=3, backoff=timedelta(milliseconds=1)
    )
    iid = await orders.post("orders", "x")
    crew = Crew(colour, database)
    crew.on("orders", script)
    async with crew:
        [dead] = await wait_until_async(orders.dead, what="a dead message")
    assert (dead.iid, dead.error, dead.attempts) == (iid, "ZeroDivisionError: never", 3)
    assert attempts == [0, 1, 2]


async def test_a_handler_decides_when_to_retry_and_when_to_park(colour, database, orders, clock):
    seen = []

    def script(message):
        seen.append(message.data)
        if message.data == "park":
            raise Park("makes no sense")
        if message.attempts == 0:
            raise Retry("not yet", after=timedelta(hours=2))

    await orders.post_many("orders", ["retry", "park"])
    crew = Crew(colour, database)
    crew.on("orders", script)
    async with crew:
        [dead] = await wait_until_async(orders.dead, what="a dead message")
        assert (dead.error, dead.attempts) == ("makes no sense", 1)
        clock.advance(timedelta(hours=1))
        assert sorted(seen) == ["park", "retry"]
        clock.advance(timedelta(hours=2))

        async def is_empty():
            [status] = await orders.status("orders")
            return status.depth == 0

        await wait_until_async(is_empty, what="the retried message is handled")
    assert sorted(seen) == ["park", "retry", "retry"]


@ALONE_AND_SHARED
async def test_a_database_error_that_a_handler_hides_is_a_failure(
    colour, shape, database, orders, sight
):
    """The server would turn the commit into a rollback, and the message would seem consumed."""
    crew = Crew(colour, database)
    if crew.is_blocking:

        def hide(message, connection):
            with contextlib.suppress(psycopg.Error):
                connection.execute("select 1/0")
    else:

        async def hide(message, connection):
            with contextlib.suppress(psycopg.Error):
                await connection.execute("select 1/0")

    crew.worker.handler("orders", **shape)(hide)
    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post("orders", "x")
    async with crew:
        [dead] = await wait_until_async(orders.dead, what="a dead message")
    assert dead.error.startswith("TransactionFailed")


async def test_a_handler_cannot_end_the_transaction(colour, database, orders, sight):
    crew = Crew(colour, database)
    if crew.is_blocking:

        def commit(message, connection):
            connection.commit()
    else:

        async def commit(message, connection):
            await connection.commit()

    crew.worker.handler("orders")(commit)
    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post("orders", "x")
    async with crew:
        [dead] = await wait_until_async(orders.dead, what="a dead message")
    assert dead.error.startswith("TransactionOwned")


@ALONE_AND_SHARED
async def test_a_commit_that_fails_costs_only_its_own_message(
    colour, shape, database, orders, sight
):
    sight("create table word (w text unique deferrable initially deferred)")
    sight("insert into word values ('2')")

    def script(message):
        return [f"insert into word values ('{message.data}')", *insert(message)]

    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post_many("orders", ["1", "2", "3"])
    crew = Crew(colour, database)
    crew.on("orders", script, **shape)
    async with crew:
        await finished(orders, sight, ["1", "3"])
        [dead] = await wait_until_async(orders.dead, what="a dead message")
    assert dead.data == "2"
    assert "UniqueViolation" in dead.error


@ALONE_AND_SHARED
async def test_a_killed_backend_loses_nothing(colour, shape, database, orders, sight):
    started, gate = threading.Event(), threading.Event()

    def script(message):
        yield from insert(message)
        started.set()
        yield gate
        yield "select 1"

    await orders.post_many("orders", ["a", "b", "c"])
    crew = Crew(colour, database)
    crew.on("orders", script, **shape)
    async with crew:
        await asyncio.to_thread(started.wait, 20)
        killed = sight(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where application_name = 'postroad worker' and datname = current_database()"
        )
        assert killed == [(True,)]
        gate.set()
        await finished(orders, sight, ["a", "b", "c"])


async def test_messages_are_handled_side_by_side(colour, database, orders, sight):
    here, both = [], threading.Event()

    def script(message):
        here.append(message.data)
        if len(here) == 2:
            both.set()
        yield both
        yield from insert(message)

    await orders.post_many("orders", ["a", "b"])
    crew = Crew(colour, database)
    crew.on("orders", script, concurrency=2, prefetch=1)
    async with crew:
        await finished(orders, sight, ["a", "b"])


async def test_stopping_lets_the_handler_finish(colour, database, orders, sight):
    started, gate = threading.Event(), threading.Event()

    def script(message):
        started.set()
        yield gate
        yield from insert(message)

    await orders.post("orders", "a")
    crew = Crew(colour, database)
    crew.on("orders", script)
    async with crew:
        await asyncio.to_thread(started.wait, 20)
        stopping = asyncio.create_task(crew.stop())
        await wait_until_async(
            lambda: asyncio.to_thread(crew.worker.stopping.is_set), what="the worker is stopping"
        )
        await orders.post("orders", "too late")
        gate.set()
        await stopping
    assert done_work(sight) == ["a"]
    assert [m.data for m in await orders.consume("orders", amount=9)] == ["too late"]


@ALONE_AND_SHARED
async def test_what_outlives_the_grace_time_is_given_back(colour, shape, database, orders, sight):
    started, gate = threading.Event(), threading.Event()

    def script(message):
        started.set()
        yield gate
        yield from insert(message)

    await orders.post("orders", "a")
    crew = Crew(colour, database, WorkerSettings(grace=timedelta(milliseconds=50)))
    crew.on("orders", script, **shape)
    try:
        async with crew:
            await asyncio.to_thread(started.wait, 20)
            await crew.stop()
            [message] = await wait_until_async(
                lambda: orders.consume("orders"), what="the message is back"
            )
        assert message.data == "a"
    finally:
        gate.set()
    assert done_work(sight) == []


async def test_a_handler_for_nobody_is_refused_at_the_start(colour, database, orders):
    crew = Crew(colour, database)
    crew.on("orders", lambda message: None, consumer="nobody")
    with pytest.raises(ConsumerNotFound, match="nobody"):
        async with crew:
            pass
    with pytest.raises(ConsumerNotFound):
        await crew.stop()


def test_handlers_of_the_other_colour_and_impossible_settings_are_refused(database):
    async def awaiting(message, connection):
        pass

    def blocking(message, connection):
        pass

    with pytest.raises(InvalidArgument, match="coroutine"):
        Worker(database).handler("orders")(awaiting)
    with pytest.raises(InvalidArgument, match="coroutine"):
        AsyncWorker(database).handler("orders")(blocking)
    with pytest.raises(InvalidArgument, match="concurrency"):
        Worker(database).handler("orders", concurrency=0)(blocking)
    with pytest.raises(InvalidArgument, match="connections"):
        Worker(database).handler("orders", mode="lease", connections=2)(blocking)
    with pytest.raises(InvalidArgument, match="mode"):
        Worker(database).handler("orders", mode="other")(blocking)


async def test_a_worker_maintains_the_bus(colour, database, orders, sight, clock):
    crew = Crew(colour, database)
    async with crew:
        await orders.post_many("orders", ["a", "b"])
        await orders.lease("orders", ttl=timedelta(minutes=1))
        clock.advance(timedelta(minutes=2))

        async def is_back():
            [status] = await orders.status("orders")
            return status.leased == 0 and status.ready == 2

        await wait_until_async(is_back, what="the ended lease is swept without a taker")


async def test_a_deadlock_is_nobodys_failed_attempt(colour, database, orders, sight):
    tries = []

    def script(message):
        tries.append(message.attempts)
        yield from insert(message)
        if len(tries) == 1:
            yield "do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$"

    await orders.post_many("orders", ["a", "b"])
    crew = Crew(colour, database)
    crew.on("orders", script)
    async with crew:
        await finished(orders, sight, ["a", "b"])
    assert tries == [0, 0, 0]


@ALONE_AND_SHARED
@pytest.mark.parametrize("statements", [("commit",), ("commit", "begin")])
async def test_a_handler_that_commits_by_itself_costs_no_other_message(
    colour, shape, statements, database, orders, sight
):
    def script(message):
        yield from insert(message)
        if message.data == "2":
            yield from statements

    await orders.post_many("orders", [str(n) for n in range(10)])
    crew = Crew(colour, database)
    crew.on("orders", script, prefetch=10, **shape)
    async with crew:
        await finished(orders, sight, [str(n) for n in range(10)])
    assert await orders.dead() == []


@ALONE_AND_SHARED
@pytest.mark.parametrize("statements", [("rollback",), ("rollback", "begin")])
async def test_a_handler_that_rolls_back_by_itself_fails_alone(
    colour, shape, statements, database, orders, sight
):
    def script(message):
        yield from insert(message)
        if message.data == "2":
            yield from statements

    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post_many("orders", [str(n) for n in range(10)])
    crew = Crew(colour, database)
    crew.on("orders", script, prefetch=10, **shape)
    async with crew:
        await finished(orders, sight, [str(n) for n in range(10) if n != 2])
        [dead] = await wait_until_async(orders.dead, what="a dead message")
    assert dead.data == "2"


@ALONE_AND_SHARED
@pytest.mark.parametrize("statements", [("commit",), ("commit", "begin")])
async def test_what_fails_after_a_handlers_own_commit_is_delivered_again_to_its_consumer(
    colour, shape, statements, database, orders, sight
):
    tries = []

    def script(message):
        yield from insert(message)
        if message.data == "2":
            yield from statements
        if message.data == "5":
            tries.append(message.iid)
            if len(tries) < 2:
                raise ZeroDivisionError

    await orders.create_consumer("orders", "other")
    await orders.alter_consumer("orders", "default", backoff=timedelta(milliseconds=1))
    await orders.post_many("orders", [str(n) for n in range(10)])
    crew = Crew(colour, database)
    crew.on("orders", script, prefetch=10, **shape)
    async with crew:

        async def are_handled():
            return sight("select count(*) from done") == [(10,)]

        await wait_until_async(are_handled, what="all are handled once")
    assert len(set(tries)) == 1
    assert {each.consumer: each.ready for each in await orders.status("orders")} == {
        "default": 0,
        "other": 10,
    }


def test_a_transaction_that_the_server_does_not_know_was_not_committed(database, connect):
    connection = connect(database, autocommit=True)
    with connection.transaction():
        [xid] = connection.execute("select pg_current_xact_id()::text").fetchone()
        assert finish(run_async(connection, was_committed(xid))) is False
    assert finish(run_async(connection, was_committed(xid))) is True
    assert finish(run_async(connection, was_committed(str(2**62)))) is False


async def test_rare_failures_leave_the_batches_large(colour, database, orders, sight):
    sight("create table transaction (data text, xid xid8)")
    failed = set()

    def script(message):
        number = int(message.data)
        if number % 333 == 1 and number not in failed:
            failed.add(number)
            raise ZeroDivisionError
        yield f"insert into transaction values ('{number}', pg_current_xact_id())"

    await orders.alter_consumer("orders", "default", backoff=timedelta(milliseconds=1))
    await orders.post_many("orders", [str(n) for n in range(2_000)])
    crew = Crew(colour, database)
    crew.on("orders", script)
    async with crew:

        async def is_done():
            return sight("select count(*) from transaction") == [(2_000,)]

        await wait_until_async(is_done, what="all are handled")
    [(transactions,)] = sight("select count(distinct xid) from transaction")
    assert transactions < 400


async def test_answers_of_a_batch_that_a_thread_took_are_sent(database, orders, monkeypatch):
    """The thread has taken the batch, but is still ending when the batch asks for more runners."""
    ended = TransactionLoops._ended

    def slowly(self, run, error):
        threading.Event().wait(0.05)
        ended(self, run, error)

    monkeypatch.setattr(TransactionLoops, "_ended", slowly)
    worker = Worker(database)

    @worker.handler("orders", concurrency=10, connections=1)
    def handle(message, connection):
        threading.Event().wait(0.0003)
        return f"answer to {message.data}"

    await orders.post_many("orders", ["no request"] * 10)
    asked = [asyncio.create_task(orders.request("orders", str(n), timeout=10)) for n in range(10)]

    async def are_posted():
        [status] = await orders.status("orders")
        return status.ready == 20

    await wait_until_async(are_posted, what="the requests are posted")
    with worker:
        answers = [reply.data for reply in await asyncio.gather(*asked)]
    assert answers == [f"answer to {n}" for n in range(10)]


@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_a_handler_is_cancelled_once(mode, database, orders):
    started, cleaned = asyncio.Event(), []
    worker = AsyncWorker(database, WorkerSettings(grace=timedelta(milliseconds=50)))

    @worker.handler("orders", mode=mode)
    async def handle(message, connection=None):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            cleaned.append(message.data)

    await orders.post("orders", "a")
    async with worker:
        await started.wait()
        await worker.stop()
    assert cleaned == ["a"]


async def test_a_handler_cannot_close_its_connection(colour, database, orders, sight):
    crew = Crew(colour, database)
    if crew.is_blocking:

        def close(message, connection):
            connection.close()
    else:

        async def close(message, connection):
            await connection.close()

    crew.worker.handler("orders")(close)
    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post("orders", "x")
    async with crew:
        [dead] = await wait_until_async(orders.dead, what="a dead message")
    assert dead.error.startswith("TransactionOwned")


@ALONE_AND_SHARED
async def test_a_message_whose_handler_loses_the_connection_each_time_has_failed(
    colour, shape, database, orders, sight
):
    def script(message):
        yield from insert(message)
        if message.data == "crash":
            yield "select pg_terminate_backend(pg_backend_pid())"

    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post_many("orders", ["a", "crash", "b"])
    crew = Crew(colour, database)
    crew.on("orders", script, **shape)
    async with crew:
        [dead] = await wait_until_async(orders.dead, what="a dead message")
        await finished(orders, sight, ["a", "b"])
    assert dead.data == "crash"
    assert "the connection was lost" in dead.error


@ALONE_AND_SHARED
async def test_a_statement_that_begins_after_its_handler_failed_is_refused(
    shape, database, orders, sight
):
    gate, left = asyncio.Event(), []
    worker = AsyncWorker(database)

    async def insert_later(connection):
        await gate.wait()
        await connection.execute("insert into done values ('left')")

    @worker.handler("orders", **shape)
    async def handle(message, connection):
        left.append(asyncio.create_task(insert_later(connection)))
        raise ValueError

    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post("orders", "x")
    async with worker:
        await wait_until_async(orders.dead, what="a dead message")
        gate.set()
        await asyncio.wait(left)
        worker.request_stop()
    assert done_work(sight) == []
    assert isinstance(left[0].exception(), psycopg.InterfaceError)
