"""Leased messages stay on the ring: what must hold for rows that are there and cannot be taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.cli.components import SCHEMAS
from postroad.testing import DatabaseClock, TestServer, wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import (
    ack,
    column,
    lease,
    maintain,
    nack,
    nobody_maintains,
    one,
    post,
    post_many,
    refused,
    rows,
    status,
    take,
)
from tests.sql.plans import touched, used_plans

MINUTE = timedelta(minutes=1)
RING = "select sum(pg_relation_size(c.oid))::bigint from pg_class c where c.relname ~ '^qt.q'"
FIGURES = """
    select pg_sequence_last_value('mbus."qs$q$head"'), pg_sequence_last_value('mbus."qs$q$tail"')"""


@pytest.fixture
def small(live: str, connect: Connect) -> Connection:
    """Give a session on a queue of three small slots."""
    owner = connect(live, autocommit=True)
    owner.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 16384"
    )
    owner.execute("select mbus.drop_queue('q')")
    owner.execute("select mbus.create_queue('q', 3)")
    return owner


def turn(connection: Connection, times: int = 1) -> None:
    """Post and take more than a slot holds, so that the ring rotates."""
    for _ in range(times):
        connection.execute(
            "select mbus.postn_q(array(select hstore('n', lpad(n::text, 600, '0'))"
            " from generate_series(1, 40) n))"
        )
        for _ in range(3):
            maintain(connection)
        assert len(take(connection, 100)) == 40
        for _ in range(3):
            maintain(connection)


def test_sessions_at_once_never_lease_the_same_message(live: str, connect: Connect) -> None:
    post_many(connect(live, autocommit=True), 600)
    sessions = [connect(live, autocommit=True) for _ in range(8)]

    def lease_all(session: Connection) -> list[str]:
        got: list[str] = []
        while found := lease(session, 7):
            got += [iid for _, iid, _, _ in found]
        return got

    with ThreadPoolExecutor(len(sessions)) as pool:
        leased = [iid for got in pool.map(lease_all, sessions) for iid in got]
    assert len(leased) == len(set(leased)) == 600


def test_a_lease_that_is_rolled_back_leaves_the_message_in_front(
    live: str, connect: Connect
) -> None:
    holder, other = connect(live), connect(live, autocommit=True)
    post_many(other, 3)
    assert [n for n, _, _, _ in lease(holder, 2)] == ["1", "2"]
    for _ in range(3):
        maintain(other)
    holder.rollback()
    assert take(other) == ["1", "2", "3"]


def test_takes_begin_behind_leased_messages(live: str, connect: Connect) -> None:
    connection = connect(live, autocommit=True)
    post_many(connection, 5)
    lease(connection, 3)
    for _ in range(2):
        maintain(connection)
    marks = rows(
        connection,
        "select pg_sequence_last_value('mbus.\"qt$q$0$base\"'),"
        " pg_sequence_last_value('mbus.\"qt$q$0$hint\"')",
    )
    assert marks == [(1, 4)]
    assert take(connection) == ["4", "5"]


def test_an_answer_of_an_earlier_lease_is_refused(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    connection = connect(live, autocommit=True)
    iid = post(connection, 1)
    ((_, _, first, _),) = lease(connection)
    clock.advance(MINUTE)
    maintain(connection)
    ((_, again, second, attempt),) = lease(connection)
    assert (again, attempt) == (iid, 2)
    for answer in ("ack(%s, %s)", "nack(%s, %s)", "extend(%s, %s)"):
        with refused(connection, "MB015"):
            connection.execute(f"select mbus.{answer}".encode(), (iid, first))
    assert one(connection, "select mbus.extendn(%s, %s)", [iid], [first]) == [iid]
    assert one(connection, "select mbus.ackn(%s, %s)", [iid, iid], [first, second]) == [iid]
    assert status(connection, "depth") == 0


def test_tokens_are_checked_against_their_iids(bus: Connection) -> None:
    post_many(bus, 2)
    (_, one_iid, one_token, _), (_, other_iid, other_token, _) = lease(bus, 2)
    iids = [one_iid, other_iid]
    assert one(bus, "select mbus.ackn(%s, %s)", iids, [other_token, one_token]) == iids
    assert one(bus, "select mbus.extendn(%s, %s)", iids, [other_token, one_token]) == iids
    assert one(bus, "select mbus.ackn(%s, %s)", iids, [-(2**63), 1023]) == iids
    assert one(bus, "select mbus.ackn(%s, %s)", iids, [one_token, other_token]) == []


ACK = "select mbus.ackn_q_by_default(%s::text[], %s::bigint[])"


@pytest.mark.parametrize("headers", [None, "group=>a"])
def test_a_consumer_acks_its_own_leases(bus: Connection, headers: str | None) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    for number in range(3):
        post(bus, number, headers)
    amount = 3 if headers is None else 1
    leased = lease(bus, amount)
    iids, tokens = [iid for _, iid, _, _ in leased], [token for _, _, token, _ in leased]
    ((_, other_iid, other_token, _),) = lease(bus, whose="q_by_second")
    foreign = [other_iid, iids[0], "q.0@x", "r.1@x", "", None]
    assert one(bus, ACK, foreign, [other_token, 1023, 7, tokens[0], 8, None]) == [
        other_token, 1023, 7, tokens[0], 8, None,
    ]  # fmt: skip
    assert one(bus, ACK, iids, tokens) == []
    assert one(bus, ACK, iids, tokens) == tokens
    assert one(bus, ACK, [], []) == []
    with refused(bus, "MB012"):
        one(bus, ACK, iids, [])
    assert status(bus, "depth") == 3 - amount
    assert status(bus, "leased", consumer="second") == 1


def test_a_retry_is_acked_under_its_number(bus: Connection) -> None:
    iid = post(bus, 1)
    ((_, _, token, _),) = lease(bus)
    assert nack(bus, iid, token, delay="0") == "ready"
    ((_, again, token, attempt),) = lease(bus)
    assert (again, attempt) == (iid, 2)
    ack(bus, iid, token)
    assert status(bus, "depth") == 0


@pytest.mark.parametrize("answer", ["ack", "nack", "extend"])
def test_a_long_lease_is_moved_and_still_answered(small: Connection, answer: str) -> None:
    iid = post(small, "long")
    ((_, _, token, _),) = lease(small, ttl="1 hour")
    turn(small, 8)
    head, _ = rows(small, FIGURES)[0]
    assert head > 3
    assert status(small, "leased") == 1
    assert column(small, "select iid from mbus.browse('q', state => 'leased')") == [iid]
    small.execute(f"select mbus.{answer}(%s, %s)".encode(), (iid, token))
    assert status(small, "leased") == (1 if answer == "extend" else 0)
    if answer == "extend":
        ack(small, iid, token)
        assert status(small, "depth") == 0


def test_an_answer_waits_for_a_lease_that_is_just_moved(
    small: Connection, live: str, connect: Connect, in_thread: InThread
) -> None:
    iid = post(small, "long")
    ((_, _, token, _),) = lease(small, ttl="1 hour")
    small.execute("select mbus.postn_q(array_fill(hstore('n', repeat('0', 600)), array[40]))")
    for _ in range(3):
        maintain(small)
    mover, holder = connect(live), connect(live, autocommit=True)
    mover.execute("select mbus._carry(q, 0) from mbus.queue q")
    assert rows(mover, 'select token from mbus."qt$q$1" where origin = 1') == []
    take(small, 100)
    for _ in range(2):
        maintain(small)
    mover.rollback()
    mover.execute("select mbus._carry(q, 0) from mbus.queue q")
    assert rows(mover, 'select token from mbus."qt$q$1" where origin = 1') == [(token,)]
    acked = in_thread(holder.execute, "select mbus.ack(%s, %s)", (iid, token))
    wait_until_blocked(connect(live), holder.info.backend_pid)
    mover.commit()
    acked.result()
    assert status(small, "depth") == 0


def test_dead_versions_of_leases_go_with_their_slot(
    small: Connection, live: str, connect: Connect
) -> None:
    """The ring does not grow while an old snapshot is held, however many messages are leased."""
    holder = connect(live)
    holder.execute("begin isolation level repeatable read")
    holder.execute("select count(*) from mbus.queue")
    post(small, "long")
    lease(small, ttl="1 hour")
    sizes = []
    for rounds in (10, 40):
        for _ in range(rounds):
            small.execute(
                "select mbus.postn_q(array_fill(hstore('n', repeat('0', 300)), array[20]))"
            )
            iids, tokens = zip(
                *((iid, token) for _, iid, token, _ in lease(small, 20)), strict=True
            )
            assert one(small, "select mbus.extendn(%s, %s)", list(iids), list(tokens)) == []
            assert one(small, "select mbus.ackn(%s, %s)", list(iids), list(tokens)) == []
            for _ in range(2):
                maintain(small)
        sizes.append(one(small, RING))
    assert sizes[1] <= sizes[0] * 1.5


@pytest.mark.parametrize("held", [3, 1100, 5100])
def test_leases_end_behind_messages_that_another_transaction_holds(
    live: str, connect: Connect, clock: DatabaseClock, held: int
) -> None:
    owner, holder = connect(live, autocommit=True), connect(live)
    post_many(owner, held + 2)
    take(holder, held)
    assert len(lease(owner, 5)) == 2
    clock.advance(MINUTE)
    # Each 64th run searches behind any number of messages.
    owner.execute("select setval('mbus.tick', %s)", (63 if held > 5000 else 1,))
    maintain(owner)
    assert status(owner, "leased") == 0
    assert take(owner) == [str(held + 1), str(held + 2)]


def test_a_small_take_ends_leases_behind_held_messages_without_maintenance(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    owner, holder = connect(live, autocommit=True), connect(live)
    post_many(owner, 11)
    take(holder, 10)
    lease(owner)
    clock.advance(MINUTE)
    nobody_maintains(owner)
    assert take(owner, 1) == ["11"]


def test_leases_behind_many_held_messages_are_counted_and_shown(
    live: str, connect: Connect
) -> None:
    owner, holder = connect(live, autocommit=True), connect(live)
    post_many(owner, 5102)
    take(holder, 5100)
    leased = [iid for _, iid, _, _ in lease(owner, 2)]
    assert status(owner, "leased") == 2
    shown = """
        select iid from mbus.browse('q', state => 'leased', is_descending => %s, amt => 1)
        where is_match"""
    assert [one(owner, shown, descending) for descending in (False, True)] == leased


def test_a_page_of_leased_messages_reads_only_its_own(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    post_many(bus, 300)
    lease(bus, 300)
    plans = used_plans(bus, "select * from mbus.browse('q', state => 'leased', amt => 5)")
    read = sum(
        passed for plan in plans for _, table, passed, _ in touched(plan) if table == "ql$q$0"
    )
    assert read == 5


def test_queues_that_hold_only_leases_are_left_alone(live: str, connect: Connect) -> None:
    owner = connect(live, autocommit=True)
    for number in range(20):
        owner.execute("select mbus.create_queue(%s)", (f"r{number}",))

    def pages() -> int:
        for _ in range(4):
            maintain(owner, None)
        explain = "explain (analyze, buffers, format json) select * from mbus.maintain()"
        plans = [one(owner, explain)[0]["Plan"] for _ in range(3)]
        return min(plan["Shared Hit Blocks"] for plan in plans)

    empty = pages()
    for number in range(20):
        post(owner, 1, queue=f"r{number}")
        lease(owner, whose=f"r{number}_by_default", ttl="1 hour")
    assert pages() < empty * 1.5 + 20


@pytest.mark.parametrize("is_shortened", [False, True])
def test_a_queue_that_holds_only_leases_is_visited_when_one_ends(
    live: str, connect: Connect, clock: DatabaseClock, is_shortened: bool
) -> None:
    owner = connect(live, autocommit=True)
    clock.stop()
    post_many(owner, 2)
    lease(owner, 1, ttl="1 hour")
    ((_, iid, token, _),) = lease(owner, 1, ttl="1 hour" if is_shortened else "30 seconds")
    for _ in range(3):
        maintain(owner, None)
    if is_shortened:
        owner.execute("select mbus.extend(%s, %s, '20 seconds')", (iid, token))
    clock.advance(timedelta(seconds=29))
    for _ in range(2):
        maintain(owner, None)
    assert status(owner, "leased") == (1 if is_shortened else 2)
    clock.advance(timedelta(seconds=2))
    maintain(owner, None)
    assert status(owner, "leased") == 1
    assert take(owner) == ["2"]


def test_each_consumer_leases_its_own_copy(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    iid = post(bus, 1)
    ((_, _, token, _),) = lease(bus)
    ((_, other_iid, other_token, _),) = lease(bus, whose="q_by_second")
    assert other_iid == iid
    assert token != other_token
    ack(bus, iid, token)
    assert rows(bus, "select consumer, leased from mbus.status order by 1") == [
        ("default", 0),
        ("second", 1),
    ]
    assert nack(bus, iid, other_token, delay="0") == "ready"
    assert [n for n, _, _, _ in lease(bus, whose="q_by_second")] == ["1"]
    assert lease(bus) == []


def test_a_lease_survives_the_second_consumer(live: str, connect: Connect) -> None:
    owner = connect(live, autocommit=True)
    iid = post(owner, 1)
    ((_, _, token, _),) = lease(owner)
    owner.execute("select mbus.create_consumer('q', 'second')")
    assert take(owner) == []
    assert status(owner, "leased") == 1
    ack(owner, iid, token)
    assert status(owner, "depth") == 0


def test_leases_of_other_priorities_are_answered(bus: Connection) -> None:
    post(bus, "low", "priority=>low")
    post(bus, "normal")
    post(bus, "high", "priority=>high")
    leased = lease(bus, 3)
    assert [n for n, _, _, _ in leased] == ["high", "normal", "low"]
    iids, tokens = [iid for _, iid, _, _ in leased], [token for _, _, token, _ in leased]
    assert one(bus, "select mbus.extendn(%s, %s)", iids, tokens) == []
    assert one(bus, "select mbus.ackn(%s, %s)", iids, tokens) == []
    assert status(bus, "depth") == 0


def test_take_by_iid_removes_a_leased_message_from_its_holder(bus: Connection) -> None:
    iid = post(bus, 1)
    ((_, _, token, _),) = lease(bus)
    assert column(bus, "select headers -> 'attempts' from mbus.take(%s)", iid) == ["1"]
    with refused(bus, "MB015"):
        ack(bus, iid, token)


def test_a_view_of_the_queue_does_not_show_leased_messages(bus: Connection) -> None:
    post_many(bus, 2)
    bus.execute("select mbus.create_view('q')")
    lease(bus)
    assert column(bus, "select data -> 'n' from public.q_q") == ["2"]


def test_a_lease_from_before_groups_is_answered(bus: Connection) -> None:
    post_many(bus, 2)
    (_, iid, token, _), (_, other, other_token, _) = lease(bus, 2)
    post(bus, 3, "group=>a")
    assert [n for n, _, _, _ in lease(bus, 5)] == ["3"]
    ack(bus, iid, token)
    assert nack(bus, other, other_token, delay="0") == "ready"
    assert [n for n, _, _, _ in lease(bus, 5)] == ["2"]


def test_leases_of_many_sessions_make_no_multixacts(
    own_server: TestServer, connect: Connect
) -> None:
    """10,000 messages, leased by 16 sessions; with foreign keys nearly each of them had one."""
    dsn = own_server.dsn(own_server.create(own_server.template(*SCHEMAS)))
    owner = connect(dsn, autocommit=True)
    owner.execute("select mbus.create_queue('q')")

    def next_multixact() -> int:
        owner.execute("checkpoint")
        return int(one(owner, "select next_multixact_id::text from pg_control_checkpoint()"))

    def work(session: Connection) -> None:
        for _ in range(25):
            session.execute("select mbus.postn_q(array_fill('n=>1'::hstore, array[25]))")
            leased = lease(session, 25)
            iids, tokens = [iid for _, iid, _, _ in leased], [token for _, _, token, _ in leased]
            session.execute("select mbus.extendn(%s, %s)", (iids, tokens))
            assert one(session, "select mbus.ackn(%s, %s)", iids, tokens) == []

    sessions = [connect(dsn, autocommit=True) for _ in range(16)]
    before = next_multixact()
    with ThreadPoolExecutor(len(sessions)) as pool:
        list(pool.map(work, sessions))
    assert next_multixact() - before < 10
    assert status(owner, "leased") == 0


def test_an_answer_locks_no_slot_that_could_be_truncated(small: Connection) -> None:
    turn(small, 2)
    post_many(small, 1)
    ((_, iid, token, _),) = lease(small)
    ack(small, iid, token)
    with small.transaction():
        # Searched in every slot, because the lease is over.
        assert column(small, "select mbus.extendn(%s, %s)", [iid], [token]) == [[iid]]
        locked = column(
            small,
            "select c.relname from pg_locks l join pg_class c on c.oid = l.relation"
            " where l.pid = pg_backend_pid() and l.mode = 'RowExclusiveLock' and c.relkind = 'r'"
            " and c.relname ~ '^qt.q.' and mbus._base(c.relname) = mbus._drained()",
        )
    assert locked == []
