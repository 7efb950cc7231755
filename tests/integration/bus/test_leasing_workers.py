"""Workers in lease mode: heartbeat, gathered acks, lost leases, graceful stop."""

from __future__ import annotations

import asyncio
import sys
import threading
from datetime import timedelta

import psycopg
import pytest

from postroad.bus import AsyncBus, Park, Retry, WorkerSettings, calls
from postroad.bus.call import Procedure
from postroad.testing import wait_until_async
from tests.fixtures.holding_proxy import holding_proxy
from tests.integration.bus.crew import QUICK, Crew


@pytest.fixture
async def orders(database):
    async with AsyncBus(database) as bus:
        await bus.create_queue("orders", payload="text")
        yield bus


async def _counts(bus):
    [status] = await bus.status("orders")
    return status.ready, status.leased, status.delayed, status.dmq


async def _wait_for_counts(bus, *counts):
    async def look():
        return await _counts(bus) == counts

    await wait_until_async(look, what=f"ready, leased, delayed, dmq = {counts}")


async def test_handled_messages_are_acked(colour, database, orders):
    seen = []
    crew = Crew(colour, database)
    crew.on("orders", lambda message: seen.append(message.data), mode="lease", concurrency=3)
    async with crew:
        await orders.post_many("orders", [str(n) for n in range(300)])

        async def is_seen():
            return len(seen) == 300

        await wait_until_async(is_seen, what="all are handled")
        await _wait_for_counts(orders, 0, 0, 0, 0)
    assert sorted(seen, key=int) == [str(n) for n in range(300)]


async def test_a_lease_waits_for_the_disk_and_the_ack_of_a_worker_does_not(
    colour, database, orders, sight
):
    sight("create table note (kind text, waits text)")
    sight(
        "create function note() returns trigger language plpgsql security definer as $$ begin"
        " insert into public.note values (tg_op, current_setting('synchronous_commit'));"
        " return null; end $$"
    )
    sight(
        "do $$ declare t text; begin for t in select tablename from pg_tables where"
        " schemaname = 'mbus' and tablename like 'qt$orders$%' loop execute format('create"
        " constraint trigger note after update or delete on mbus.%I deferrable initially"
        " deferred for each row execute function public.note()', t); end loop; end $$"
    )
    crew = Crew(colour, database)
    crew.on("orders", lambda _: None, mode="lease")
    async with crew:
        await orders.post("orders", "a")
        await _wait_for_counts(orders, 0, 0, 0, 0)
    assert sight("select kind, waits from note") == [("UPDATE", "on"), ("DELETE", "off")]


async def test_failures_retries_and_parked_messages_go_their_ways(colour, database, orders):
    def script(message):
        if message.data == "fail":
            raise ZeroDivisionError("no")
        if message.data == "retry":
            raise Retry(after=3600)
        if message.data == "impossible":
            raise Retry(after=timedelta(hours=-1))
        raise Park("nonsense")

    await orders.alter_consumer("orders", "default", backoff=timedelta(hours=1))
    await orders.post_many("orders", ["impossible", "fail", "retry", "park"])
    crew = Crew(colour, database)
    crew.on("orders", script, mode="lease")
    async with crew:
        await _wait_for_counts(orders, 0, 0, 3, 1)
    [dead] = await orders.dead()
    assert (dead.data, dead.error) == ("park", "nonsense")


async def test_the_heartbeat_holds_what_takes_longer_than_its_lease(
    colour, database, orders, sight
):
    gate, runs = threading.Event(), []

    def script(message):
        runs.append(message.data)
        yield gate

    await orders.post_many("orders", ["a", "b"])
    crew = Crew(colour, database)
    crew.on("orders", script, mode="lease", ttl=timedelta(seconds=1), concurrency=2)
    try:
        async with crew:
            await _wait_for_counts(orders, 0, 2, 0, 0)
            [(first,)] = sight("select min(due_at) from mbus.browse('orders', state => 'leased')")

            async def is_extended():
                [(now,)] = sight("select min(due_at) from mbus.browse('orders', state => 'leased')")
                return now > first + timedelta(seconds=1)

            # Both leases have outlived their first end by now.
            await wait_until_async(is_extended, what="the leases are extended")
            gate.set()
            await _wait_for_counts(orders, 0, 0, 0, 0)
    finally:
        gate.set()
    assert sorted(runs) == ["a", "b"]


async def test_a_lost_lease_reaches_its_handler(colour, database, orders, sight):
    messages, cancelled = [], threading.Event()
    crew = Crew(colour, database)
    if crew.is_blocking:

        def handler(message):
            messages.append(message)
            if len(messages) == 1 and message.lost.wait(20):
                cancelled.set()
    else:

        async def handler(message):
            messages.append(message)
            if len(messages) == 1:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

    # Long enough that a busy machine does not lose the lease on its own.
    crew.worker.handler("orders", mode="lease", ttl=timedelta(seconds=6), prefetch=1)(handler)
    await orders.post("orders", "a")
    async with crew:
        await _wait_for_counts(orders, 0, 1, 0, 0)
        # As an operator would: the lease is ended under its holder.
        sight(
            "update mbus.\"qt$orders$0\" set leased_until = mbus.now() - interval '1 second'"
            " where token is not null"
        )
        assert await asyncio.to_thread(cancelled.wait, 20)
        await _wait_for_counts(orders, 0, 0, 0, 0)
    assert [message.attempt for message in messages] == [1, 2]


@pytest.mark.parametrize("group", [None, "g"])
async def test_stopping_finishes_what_has_begun_and_counts_no_attempt_of_the_rest(
    colour, group, database, orders
):
    started, gate, seen = threading.Event(), threading.Event(), []

    def script(message):
        started.set()
        yield gate
        seen.append(message.data)

    headers = [{"group": f"{group}{n}"} if group else {} for n in range(3)]
    await orders.post_many("orders", ["a", "b", "c"], headers)
    crew = Crew(colour, database)
    crew.on("orders", script, mode="lease")
    async with crew:
        await asyncio.to_thread(started.wait, 20)
        stopping = asyncio.create_task(crew.stop())
        # Messages of a group are put back beside the ring.
        await _wait_for_counts(orders, *((0, 1, 2, 0) if group else (2, 1, 0, 0)))
        gate.set()
        await stopping
    assert seen == ["a"]
    rest = await orders.lease("orders", amount=9)
    assert {(each.data, each.attempt, each.attempts) for each in rest} == {("b", 1, 0), ("c", 1, 0)}
    [status] = await orders.status("orders")
    assert status.rejected_per_second == 0


async def test_messages_leased_ahead_do_not_wait_for_a_long_handler(colour, database, orders):
    started, gate, seen = threading.Event(), threading.Event(), []

    def script(message):
        if message.data == "long":
            started.set()
            yield gate
        seen.append(message.data)

    await orders.post_many("orders", ["long", "a", "b", "c"])
    first, second = Crew(colour, database), Crew(colour, database)
    for crew in (first, second):
        crew.on("orders", script, mode="lease")
    try:
        async with first:
            await asyncio.to_thread(started.wait, 20)
            async with second:
                await _wait_for_counts(orders, 0, 1, 0, 0)
                assert sorted(seen) == ["a", "b", "c"]
                gate.set()
            await _wait_for_counts(orders, 0, 0, 0, 0)
    finally:
        gate.set()


async def test_a_released_message_is_ready_and_a_lost_one_is_named(bus, database, orders, clock):
    await orders.post_many("orders", ["a", "b"])
    [first] = await orders.lease("orders", ttl=timedelta(minutes=1))
    [second] = await orders.lease("orders", ttl=timedelta(minutes=5))
    clock.advance(timedelta(minutes=2))
    assert await bus.release_many([first, second]) == [first.iid]
    assert await bus.release_many([second]) == [second.iid]
    [again] = await orders.lease("orders")
    assert (again.iid, again.attempt) == (second.iid, 1)


async def test_what_outlives_the_grace_time_is_given_back(colour, database, orders):
    started, gate = threading.Event(), threading.Event()

    def script(message):
        started.set()
        yield gate

    await orders.post_many("orders", ["a", "b"])
    crew = Crew(colour, database, WorkerSettings(grace=timedelta(milliseconds=50)))
    crew.on("orders", script, mode="lease", concurrency=2)
    try:
        async with crew:
            await asyncio.to_thread(started.wait, 20)
            await _wait_for_counts(orders, 0, 2, 0, 0)
            await crew.stop()
            assert (await _counts(orders))[:2] == (2, 0)
    finally:
        gate.set()


async def test_a_cut_connection_costs_no_ack(colour, database, orders, sight):
    started, gate, seen = threading.Event(), threading.Event(), []

    def script(message):
        started.set()
        yield gate
        seen.append(message.data)

    await orders.post_many("orders", ["a", "b"])
    crew = Crew(colour, database, QUICK)
    crew.on("orders", script, mode="lease", concurrency=2)
    async with crew:
        await asyncio.to_thread(started.wait, 20)
        await _wait_for_counts(orders, 0, 2, 0, 0)
        sight(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where application_name like 'postroad%' and pid <> pg_backend_pid()"
            " and datname = current_database()"
        )
        gate.set()
        await _wait_for_counts(orders, 0, 0, 0, 0)
    assert sorted(seen) == ["a", "b"]


async def test_a_deadlock_in_a_handler_is_tried_again_under_the_same_lease(
    colour, database, orders
):
    tries = []

    def script(message):
        tries.append((message.token, message.attempt))
        if len(tries) < 3:
            raise RuntimeError("of whatever library") from psycopg.errors.DeadlockDetected()

    await orders.post("orders", "a")
    crew = Crew(colour, database)
    crew.on("orders", script, mode="lease")
    async with crew:
        await wait_until_async(lambda: _is(tries, 3), what="the third try")
        await _wait_for_counts(orders, 0, 0, 0, 0)
    assert len(set(tries)) == 1


async def _is(tries, count):
    return len(tries) == count


@pytest.mark.parametrize("mode", ["lease", "transaction"])
async def test_a_handler_that_exits_has_failed_and_the_worker_goes_on(
    colour, mode, database, orders
):
    seen = []
    crew = Crew(colour, database)
    if crew.is_blocking:

        def handler(message, connection=None):
            seen.append(message.data)
            if message.data == "exit":
                sys.exit(1)
    else:

        async def handler(message, connection=None):
            seen.append(message.data)
            if message.data == "exit":
                task = asyncio.create_task(asyncio.Event().wait())
                task.cancel()
                await task

    crew.worker.handler("orders", mode=mode)(handler)
    await orders.alter_consumer("orders", "default", max_attempts=1)
    await orders.post_many("orders", ["exit", "next"])
    async with crew:
        [dead] = await wait_until_async(orders.dead, what="a dead message")
        await _wait_for_counts(orders, 0, 0, 0, 1)
        assert crew.worker.is_running
    assert dead.data == "exit"
    assert dead.error.startswith(("SystemExit", "CancelledError"))
    assert "next" in seen


@pytest.mark.parametrize("call", ["ack_many", "extend_many", "leased"])
async def test_a_worker_that_cannot_ack_extend_or_lease_ends_with_the_error(
    colour, call, database, orders, monkeypatch
):
    gate = threading.Event()

    def script(message):
        if call == "extend_many":
            yield gate

    def broken(*_, **__):
        raise TypeError("a defect")

    await orders.post("orders", "a")
    crew = Crew(colour, database)
    crew.on("orders", script, mode="lease", ttl=timedelta(milliseconds=300))
    monkeypatch.setattr(AsyncBus if call == "extend_many" else calls, call, broken)
    try:
        await crew._call("start")

        async def has_ended():
            return not crew.worker.is_running

        await wait_until_async(has_ended, what="the worker has ended")
    finally:
        gate.set()
        with pytest.raises(TypeError, match="a defect"):
            await crew.stop()


async def test_a_lease_that_ends_before_its_handler_begins_does_not_end_the_worker(
    colour, database, orders, monkeypatch
):
    ttl, lease = timedelta(milliseconds=300), calls.leased
    slow = asyncio.Event()

    def late(*arguments):
        async def work(runner):
            leased = await runner.run(lease(*arguments))
            if leased and not slow.is_set():
                slow.set()
                # Longer than the lease, shorter than messages wait leased.
                await asyncio.sleep(0.6)
            return leased

        return Procedure(work)

    monkeypatch.setattr(calls, "leased", late)
    await orders.post_many("orders", ["a", "b"])
    crew = Crew(colour, database)
    crew.on("orders", lambda message: (), mode="lease", ttl=ttl, concurrency=2)
    async with crew:
        await _wait_for_counts(orders, 0, 0, 0, 0)
        assert crew.worker.is_running


async def test_a_silent_network_does_not_outlive_the_lease(colour, database, orders):
    started, ended = threading.Event(), threading.Event()
    host = psycopg.conninfo.conninfo_to_dict(database)
    target = (
        f"{host['host']}/.s.PGSQL.{host.get('port', 5432)}"
        if str(host["host"]).startswith("/")
        else int(host["port"])
    )
    with holding_proxy(target) as proxy:
        behind = psycopg.conninfo.make_conninfo(database, host="127.0.0.1", port=proxy.port)
        crew = Crew(colour, behind, WorkerSettings(grace=timedelta(milliseconds=50)))
        if crew.is_blocking:

            def handler(message):
                started.set()
                if message.lost.wait(20):
                    ended.set()
        else:

            async def handler(message):
                started.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    ended.set()
                    raise

        crew.worker.handler("orders", mode="lease", ttl=timedelta(seconds=1))(handler)
        await orders.post("orders", "a")
        async with crew:
            assert await asyncio.to_thread(started.wait, 20)
            proxy.holds_requests.set()
            try:
                assert await asyncio.to_thread(ended.wait, 15)
            finally:
                # The worker's last calls must not wait for the silent network.
                proxy.close()
    [again] = await wait_until_async(lambda: orders.lease("orders"), what="another may have it")
    assert again.attempt == 2
