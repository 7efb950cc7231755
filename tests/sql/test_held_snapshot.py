"""Costs that must not grow while somebody holds an old snapshot, counted in pages; and MultiXacts.

Dead rows cannot be removed before the snapshot is released, so whatever walks over them gets slower
with each message.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock, wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, lease, maintain, nack, one, post, rows, status, take


@pytest.fixture
def held(live: str, connect: Connect) -> Connection:
    """Give a session beside which an old snapshot is held."""
    holder = connect(live)
    holder.execute("begin isolation level repeatable read")
    holder.execute("select count(*) from mbus.queue")
    return connect(live, autocommit=True)


def pages(connection: Connection, query: str) -> int:
    """Count the pages that a query touches, the least of three times."""
    counts = []
    for _ in range(3):
        explain = f"explain (analyze, buffers, timing off, format json) {query}"
        with connection.transaction(force_rollback=True):
            plan = one(connection, explain)[0]["Plan"]
        counts.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return min(counts)


def lease_and_ack(connection: Connection, rounds: int, batch: int, headers: str) -> None:
    for _ in range(rounds):
        connection.execute(
            "select mbus.postn_q(array_fill('n=>1'::hstore, array[%s]),"
            f" array(select {headers} from generate_series(1, %s) n))".encode(),
            (batch, batch),
        )
        leased = rows(connection, "select iid, token from mbus.lease_q_by_default(%s)", batch)
        assert len(leased) == batch
        iids, tokens = zip(*leased, strict=True)
        assert one(connection, "select mbus.ackn(%s, %s)", list(iids), list(tokens)) == []
        maintain(connection, None)


def test_a_group_costs_the_same_after_many_leases(held: Connection) -> None:
    query = "select * from mbus.lease_q_by_default(10)"
    counts = []
    for rounds in (30, 250):
        lease_and_ack(held, rounds, 10, "hstore('group', n::text)")
        held.execute(
            "select mbus.post_q('n=>1', hstore('group', n::text)) from generate_series(1, 10) n"
        )
        counts.append(pages(held, query))
        assert len(take(held, 10)) == 10
    assert counts[1] < counts[0] * 1.5 + 50


@pytest.mark.parametrize(
    "query",
    [
        "select * from mbus.status",
        "select * from mbus.maintain()",
        "select * from mbus.maintain('q')",
    ],
)
def test_figures_and_maintenance_cost_the_same_after_many_leases(
    held: Connection, clock: DatabaseClock, query: str
) -> None:
    counts = []
    for rounds in (1, 20):
        lease_and_ack(held, rounds, 500, "null::hstore")
        post(held, "ready")  # so that maintenance visits the queue
        clock.advance(timedelta(minutes=1))
        for _ in range(3):
            maintain(held, None)
        # An ANALYZE by autovacuum lets the next call plan its statements again; the others show
        # the cost.
        counts.append(min(pages(held, query) for _ in range(3)))
    assert counts[1] < counts[0] * 1.5 + 50


def test_rows_of_keys_are_bounded(held: Connection, clock: DatabaseClock) -> None:
    held.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 65536"
    )
    sizes = []
    for rounds in (10, 40):
        for _ in range(rounds):
            held.execute(
                "select mbus.post_q('n=>1', hstore(array['dedup_key', 'dedup_window'],"
                " array[gen_random_uuid()::text, '1 second'])) from generate_series(1, 300)"
            )
            take(held, 300)
            clock.advance(timedelta(seconds=2))
            for _ in range(3):
                maintain(held, None)
        sizes.append(
            one(
                held,
                "select sum(pg_relation_size(inhrelid))::bigint from pg_inherits"
                " where inhparent = 'mbus.dedup'::regclass",
            )
        )
    assert sizes[1] <= sizes[0] * 1.5


def test_dead_rows_of_delayed_messages_are_bounded(held: Connection, clock: DatabaseClock) -> None:
    held.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 65536"
    )
    for _ in range(20):
        post(held, "long", delayed_until="2100-01-01")
    sizes = []
    for rounds in (10, 40):
        for _ in range(rounds):
            held.execute(
                "select mbus.post_q(hstore('n', repeat('x', 300)),"
                " delayed_until => mbus.now() + interval '1 second') from generate_series(1, 50)"
            )
            clock.advance(timedelta(seconds=2))
            assert one(held, "select released from mbus.maintain('q')") == 50
            assert len(take(held, 100)) == 50
            held.execute("select mbus._rotate_delayed()")
        sizes.append(
            one(
                held,
                "select sum(pg_relation_size(inhrelid))::bigint from pg_inherits"
                " where inhparent = 'mbus.delayed'::regclass",
            )
        )
    assert sizes[1] <= sizes[0] * 1.5
    assert status(held, "delayed") == 20


def test_dead_rows_of_retried_messages_are_bounded(held: Connection, clock: DatabaseClock) -> None:
    held.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 32768"
    )
    retry = (
        "select count(mbus.nack(iid, token, '1 second', 'busy'))"
        " from mbus.lease_q_by_default(100, '1 hour')"
    )
    sizes = []
    for rounds in (5, 20):
        for _ in range(rounds):
            held.execute(
                "select mbus.post_q(hstore('n', repeat('x', 300))) from generate_series(1, 20)"
            )
            assert one(held, retry) == 20
            clock.advance(timedelta(seconds=2))
            assert one(held, "select released from mbus.maintain('q')") == 20
            assert len(take(held, 100)) == 20
            maintain(held, None)
            held.execute("select mbus._rotate_delayed()")
        sizes.append(
            one(
                held,
                "select sum(pg_relation_size(oid))::bigint from pg_class"
                " where relname ~ '^(delayed_|qt[$]q[$])' and relkind = 'r'",
            )
        )
    assert sizes[1] <= sizes[0] * 1.5 + 65536


def test_delayed_messages_are_moved_when_no_table_is_free(live: str, connect: Connect) -> None:
    owner = connect(live, autocommit=True)
    owner.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 65536"
    )
    iids = []
    for _ in range(8):
        iids += [post(owner, "x" * 300, delayed_until="2100-01-01") for _ in range(150)]
        for _ in range(3):
            owner.execute("select mbus._rotate_delayed()")
    assert status(owner, "delayed") == len(set(iids)) == 1200
    tables = "select count(distinct segment) from mbus.delayed"
    assert one(owner, tables) > 1
    for iid in (iids[0], iids[-1]):
        assert len(rows(owner, "select * from mbus.take(%s)", iid)) == 1


def test_delayed_messages_are_moved_as_fast_as_they_come(live: str, connect: Connect) -> None:
    owner = connect(live, autocommit=True)
    owner.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 65536"
    )
    for segment, count in ((0, 3000), (1, 6000), (2, 6000)):
        owner.execute("select setval('mbus.delayed_tail', %s)", (segment,))
        owner.execute(
            "select mbus.post_q('n=>1', delayed_until => '2100-01-01') from generate_series(1, %s)",
            (count,),
        )
    maintain(owner, None)
    assert one(owner, "select count(*) from mbus.delayed_0") == 0
    assert status(owner, "delayed") == 10000
    assert one(owner, "select count(*) from mbus.delayed") == 15000


def test_messages_do_not_lock_the_rows_of_queue_and_consumer(live: str, connect: Connect) -> None:
    """Each lock of several sessions at once on such a row would be a MultiXact."""
    sessions = [connect(live) for _ in range(3)]
    owner = connect(live, autocommit=True)
    owner.execute("select mbus.create_queue('r')")
    iid = post(owner, 0)
    post(owner, 0, f'group=>a, consume_after=>"{iid}"', queue="r")
    post(owner, 0, "group=>a, dedup_key=>a")
    owner.execute("select mbus.consumen_q_by_default(10), mbus.consumen_r_by_default(10)")
    post(owner, "before")
    iid = post(owner, "before")
    locks = "select xmax::text from mbus.queue union all select xmax::text from mbus.consumer"
    before = column(owner, locks)
    for number, session in enumerate(sessions):
        post(session, number, delayed_until="2100-01-01")
        post(session, number, f"dedup_key=>{number}")
        post(session, number, f'consume_after=>"{iid}"', queue="r")
        session.execute("select mbus.get_iid('q')")
        ((leased, token),) = rows(session, "select iid, token from mbus.lease_q_by_default(1)")
        session.execute("select mbus.nack(%s, %s, '1 hour')", (leased, token))
    assert column(owner, locks) == before
    for session in sessions:
        session.commit()


@pytest.mark.parametrize("is_lease_open", [True, False])
def test_the_floor_of_leases_passes_over_none(
    live: str, connect: Connect, is_lease_open: bool
) -> None:
    """Neither over one that is not committed yet, nor over one whose ack is rolled back."""
    owner, other, maintainer = (connect(live), connect(live), connect(live, autocommit=True))
    post(owner, 1, "group=>a")
    post(owner, 2, "group=>a")
    owner.commit()
    if is_lease_open:
        assert len(rows(owner, "select * from mbus.lease_q_by_default(1)")) == 1
    else:
        ((iid, token),) = rows(owner, "select iid, token from mbus.lease_q_by_default(1)")
        owner.commit()
        owner.execute("select mbus.ack(%s, %s)", (iid, token))
    for _ in range(3):
        post(other, 3)
        ((iid, token),) = rows(
            other, "select iid, token from mbus.lease_q_by_default(9) where not headers ? 'group'"
        )
        other.commit()
        other.execute("select mbus.ack(%s, %s)", (iid, token))
        other.commit()
        maintain(maintainer, None)
    owner.commit() if is_lease_open else owner.rollback()
    assert rows(maintainer, "select * from mbus.lease_q_by_default(1)") == []
    assert one(maintainer, "select leased from mbus.status") == 1


def test_a_dropped_queue_takes_its_messages_along(live: str, connect: Connect) -> None:
    owner = connect(live, autocommit=True)
    owner.execute("select mbus.create_queue('r')")
    for queue in ("q", "r"):
        iid = post(owner, 1, queue=queue)
        post(owner, 2, "dedup_key=>a", queue=queue)
        post(owner, 3, delayed_until="2100-01-01", queue=queue)
        post(owner, 4, f'consume_after=>"{iid}"', queue=queue)
        owner.execute(f"select mbus.get_iid('{queue}')".encode())
        post(owner, 5, "group=>a", queue=queue)
        owner.execute(f"select mbus.lease_{queue}_by_default(1)".encode())
    owner.execute("select mbus.drop_queue('q')")
    for table in ("leased", "delayed", "blocked", "reserved", "dedup"):
        left = column(
            owner, f"select q.name from mbus.{table} m left join mbus.queue q on q.id = m.queue_id"
        )
        assert left == ["r"], table


@pytest.mark.parametrize("step", ["answers", "takes a retry"])
def test_a_consumer_is_dropped_with_what_is_just_moving(
    live: str, connect: Connect, in_thread: InThread, step: str
) -> None:
    owner, worker = connect(live, autocommit=True), connect(live)
    owner.execute("select mbus.create_consumer('q', 'second')")
    post(owner, 1, "group=>a")
    lease = "select iid, token from mbus.lease_q_by_second(1)"
    ((iid, token),) = rows(worker, lease)
    worker.commit()
    if step == "takes a retry":
        worker.execute("select mbus.nack(%s, %s, '0')", (iid, token))
        worker.commit()
        assert len(rows(worker, lease)) == 1
    else:
        worker.execute("select mbus.nack(%s, %s, '1 hour')", (iid, token))
    dropped = in_thread(owner.execute, "select mbus.drop_consumer('q', 'second')")
    wait_until_blocked(connect(live), owner.info.backend_pid)
    worker.commit()
    dropped.result()
    assert column(owner, "select number from mbus.leased") == []
    assert column(owner, "select number from mbus.delayed") == []


def test_a_consumer_is_dropped_with_the_retries_that_are_just_moved(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    owner = connect(live, autocommit=True)
    owner.execute("select mbus.create_consumer('q', 'second')")
    post(owner, 1, "group=>a")
    ((_, iid, token, _),) = lease(owner, whose="q_by_second")
    nack(owner, iid, token, delay="1 hour")
    mover = connect(live)
    # As mbus._rotate_delayed does within mbus.maintain.
    mover.execute("select pg_advisory_xact_lock(mbus._lock_class(), 0)")
    mover.execute(
        "with gone as (delete from mbus.delayed d returning d as message) insert into mbus.delayed"
        " select (g.message #= hstore('segment', '1')).* from gone g"
    )
    dropped = in_thread(owner.execute, "select mbus.drop_consumer('q', 'second')")
    wait_until_blocked(connect(live), owner.info.backend_pid)
    mover.commit()
    dropped.result()
    assert one(owner, "select count(*) from mbus.delayed where consumer_id is not null") == 0
