"""The statements that move pending jobs of another system, beside its running workers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection

from tests.docs.other_systems import Place, prepare
from tests.docs.runner import PageRunner
from tests.docs.snippets import DOCS, Snippet, commands, snippets
from tests.fixtures.postgres import Connect

pytestmark = pytest.mark.timeout(180)
AMOUNT = 120
Moves = Callable[..., Callable[[], int]]


@pytest.fixture
def moves(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Moves:
    """Return a function that prepares the system of a page and returns the page's move command."""

    def start(page: str, **replaced: str) -> Callable[[], int]:
        prepared = prepare(page, Place(database, tmp_path, request.getfixturevalue))
        found = snippets(DOCS / page)
        [move] = [
            command
            for each in found
            if each.language == "console"
            for command, _ in commands(each.body)
            if "-f move.sql" in command
        ]
        for old, new in replaced.items():
            assert move.count(f"-v {old}=") == 1
            move = re.sub(rf"-v {old}=(\S+|'[^']*')", f"-v {old}={new}", move)
        runner = PageRunner(database, tmp_path, prepared.variables)
        for snippet in found[: found.index(_first_python(found))]:
            runner.run(snippet)
        [file] = [each for each in found if each.title == "move.sql"]
        runner.run(file)
        return lambda: int(runner.command(["sh", "-ec", move]).split()[2])

    return start


def _first_python(found: list[Snippet]) -> Snippet:
    return next(each for each in found if each.language == "python" and each.title is None)


def _numbers(connection: Connection, query: str) -> list[int]:
    return [int(row[0]) for row in connection.execute(query.encode())]


def _texts(connection: Connection, query: str) -> list[str]:
    return [row[0] for row in connection.execute(query.encode())]


def _worked_beside(database: str, move: Callable[[], int], next_job: str) -> list[int]:
    """Run a worker of the other system while jobs are moved; return the numbers it handled."""
    handled: list[int] = []
    begun = threading.Event()
    moved = threading.Event()

    def work() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            while found := _numbers(connection, next_job):
                handled.extend(found)
                begun.set()
                if len(handled) == 20:
                    moved.wait(60)

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(60)
    assert move() > 0
    moved.set()
    worker.join(60)
    return handled


def test_messages_of_pgmq_are_handled_once_while_its_worker_runs(
    moves: Moves, database: str, connect: Connect
) -> None:
    move = moves("howto/migrate-from-pgmq.md")
    connection = connect(database, autocommit=True)
    connection.execute("truncate pgmq.q_orders")
    connection.execute(
        "select pgmq.send('orders', jsonb_build_object('number', n)) from generate_series(1, %s) n",
        (AMOUNT,),
    )
    read = """
        with read as (select * from pgmq.read('orders', 3600, 1))
        select read.message->>'number' from read where pgmq.delete('orders', read.msg_id)"""
    old = _worked_beside(database, move, read)
    assert move() == 0
    new = _numbers(connection, "select data->>'number' from mbus.consumen_orders_by_default(1000)")
    assert sorted(old + new) == list(range(1, AMOUNT + 1))
    assert new == sorted(new)


def test_a_message_of_pgmq_that_a_worker_has_read_stays(
    moves: Moves, database: str, connect: Connect
) -> None:
    move = moves("howto/migrate-from-pgmq.md")
    connection = connect(database, autocommit=True)
    assert _numbers(connection, "select msg_id from pgmq.read('orders', 3600, 1)") == [1]
    assert (move(), move()) == (2, 0)
    assert _numbers(connection, "select msg_id from pgmq.q_orders") == [1]
    connection.execute("select pgmq.set_vt('orders', 1, 0)")
    assert (move(), move()) == (1, 0)


def test_jobs_of_procrastinate_are_handled_once_while_its_worker_runs(
    moves: Moves, database: str, connect: Connect
) -> None:
    move = moves("howto/migrate-from-procrastinate.md")
    connection = connect(database, autocommit=True)
    connection.execute("truncate procrastinate_jobs cascade")
    connection.execute(
        "insert into procrastinate_jobs (queue_name, task_name, args)"
        " select 'shop', 'bill', jsonb_build_object('number', n) from generate_series(1, %s) n",
        (AMOUNT,),
    )
    fetch = """
        with job as (select * from procrastinate_fetch_job_v2(array['shop'], null)),
        done as (select procrastinate_finish_job_v1(id, 'succeeded', false) from job where id > 0)
        select args->>'number' from job, done"""
    old = _worked_beside(database, move, fetch)
    assert move() == 0
    new = _numbers(
        connection, "select data->'args'->>'number' from mbus.consumen_shop_by_default(1000)"
    )
    assert sorted(old + new) == list(range(1, AMOUNT + 1))


def test_a_job_of_procrastinate_waits_for_the_running_one_with_its_lock(
    moves: Moves, database: str, connect: Connect
) -> None:
    move = moves("howto/migrate-from-procrastinate.md")
    connection = connect(database, autocommit=True)
    connection.execute(
        "insert into procrastinate_jobs (queue_name, task_name, lock, args, status)"
        " values ('shop', 'bill', 'customer-17', '{}', 'doing')"
    )
    assert (move(), move()) == (4, 0)
    connection.execute("update procrastinate_jobs set status = 'succeeded' where status = 'doing'")
    assert (move(), move()) == (1, 0)


def test_a_job_of_pg_boss_waits_for_the_running_one_of_its_group(
    moves: Moves, database: str, connect: Connect
) -> None:
    move = moves("howto/migrate-from-pg-boss.md")
    connection = connect(database, autocommit=True)
    connection.execute(
        "insert into pgboss.job (name, group_id, state) values ('orders', 'customer-17', 'active')"
    )
    assert (move(), move()) == (4, 0)
    connection.execute("update pgboss.job set state = 'completed' where state = 'active'")
    assert (move(), move()) == (1, 0)


def test_a_queueing_lock_of_procrastinate_is_kept_until_the_job_is_taken(
    moves: Moves, database: str, connect: Connect
) -> None:
    move = moves("howto/migrate-from-procrastinate.md")
    assert move() == 5
    connection = connect(database, autocommit=True)
    [moved] = _texts(
        connection,
        "select iid from mbus.browse('shop', 'default') where data::jsonb->'args'->>'number' = '5'",
    )
    post = "select mbus.post('shop', '{}', headers => 'unique_key=>report, unique_until=>taken')"
    assert _texts(connection, post) == [moved]
    lease = "select iid from mbus.lease_shop_by_default(10) where iid = '%s'"
    assert _texts(connection, lease % moved) == [moved]
    assert _texts(connection, post) != [moved]


# How a second job with the key is posted for each policy, and when it is added.
POLICIES = {
    "exclusive": ("unique_key=>k", "after the ack"),
    "short": ("unique_key=>k, unique_until=>taken", "after the lease"),
    "stately": ("unique_key=>k, unique_until=>taken, group=>k", "after the lease"),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_singleton_key_of_pg_boss_is_kept(
    moves: Moves, database: str, connect: Connect, policy: str
) -> None:
    headers, added = POLICIES[policy]
    move = moves("howto/migrate-from-pg-boss.md", queue="one")
    connection = connect(database, autocommit=True)
    connection.execute("select mbus.create_queue('one', payload => 'jsonb')")
    connection.execute(
        "select pgboss.create_queue('one', jsonb_build_object('policy', %s::text))", (policy,)
    )
    connection.execute(
        "insert into pgboss.job (name, singleton_key, policy) values ('one', 'k', %s)", (policy,)
    )
    assert (move(), move()) == (1, 0)
    post = f"select mbus.post('one', '{{}}', headers => '{headers}')"
    [moved] = _texts(connection, "select iid from mbus.browse('one', 'default')")
    assert _texts(connection, post) == [moved]
    row = connection.execute("select iid, token from mbus.lease_one_by_default(1)").fetchone()
    assert row is not None
    assert row[0] == moved
    assert (_texts(connection, post) == [moved]) == (added == "after the ack")
    connection.execute("select mbus.ack(%s, %s)", row)
    assert _texts(connection, post) != [moved]


def test_a_singleton_of_pg_boss_waits_for_the_active_one(
    moves: Moves, database: str, connect: Connect
) -> None:
    move = moves("howto/migrate-from-pg-boss.md", queue="one")
    connection = connect(database, autocommit=True)
    connection.execute("select mbus.create_queue('one', payload => 'jsonb')")
    connection.execute("""select pgboss.create_queue('one', '{"policy": "singleton"}')""")
    connection.execute(
        "insert into pgboss.job (name, singleton_key, policy, state) values"
        " ('one', 'k', 'singleton', 'active'), ('one', 'k', 'singleton', 'created'),"
        " ('one', 'k', 'singleton', 'created'), ('one', 'other', 'singleton', 'created')"
    )
    assert (move(), move()) == (1, 0)
    connection.execute("update pgboss.job set state = 'completed' where state = 'active'")
    assert (move(), move()) == (2, 0)
    # One message of each key at a time.
    lease = "select headers->'group' from mbus.lease_one_by_default(10)"
    assert sorted(_texts(connection, lease)) == ["k", "other"]
    assert _texts(connection, lease) == []


def test_a_throttling_slot_of_pg_boss_is_kept_until_it_ends(
    moves: Moves, database: str, connect: Connect
) -> None:
    move = moves("howto/migrate-from-pg-boss.md")
    assert move() == 5
    connection = connect(database, autocommit=True)
    post = """select mbus.post('orders', '{}', headers => 'dedup_key=>customer-18')"""
    [moved] = _texts(
        connection,
        "select iid from mbus.browse('orders', 'default') where data::jsonb->>'number' = '5'",
    )
    assert _texts(connection, post) == [moved]
    remains = "select until - mbus.now() <= '1 hour' and until > mbus.now() from mbus.dedup"
    assert connection.execute(remains).fetchall() == [(True,)]
