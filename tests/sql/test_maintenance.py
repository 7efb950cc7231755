"""Maintenance may run, run twice, or not at all: nothing is lost and nothing comes twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock
from tests.fixtures.postgres import Connect
from tests.sql.calls import (
    ack,
    lease,
    maintain,
    nack,
    nobody_maintains,
    one,
    post,
    post_many,
    rows,
    status,
    take,
)

MINUTE = timedelta(minutes=1)
FIGURES = """
    select pg_sequence_last_value('mbus."qs$q$head"'), pg_sequence_last_value('mbus."qs$q$tail"')"""


@pytest.fixture
def small(live: str, connect: Connect) -> str:
    """Give a database whose ring turns after a few kilobytes and has two to four slots."""
    with connect(live) as owner:
        owner.execute(
            "create or replace function mbus._slot_bytes() returns bigint"
            " language sql immutable parallel safe return 16384"
        )
        owner.execute("select mbus.drop_queue('q')")
        owner.execute("select mbus.create_queue('q', 3)")
    return live


def fill(connection: Connection, name: str = "x") -> None:
    """Post a little more than a slot holds."""
    connection.execute(
        "select mbus.postn_q(array(select hstore('n', %s || lpad(n::text, 600, '0'))"
        " from generate_series(1, 40) n))",
        (name,),
    )


def figures(connection: Connection) -> tuple[int, int]:
    return rows(connection, FIGURES)[0]


def rotate(connection: Connection) -> None:
    """Maintain until the ring has turned once: the first run may only make the slot."""
    tail = figures(connection)[1]
    for _ in range(3):
        maintain(connection)
        if figures(connection)[1] > tail:
            return
    raise AssertionError("the ring did not turn")


def drain(connection: Connection, whose: str = "q_by_default") -> list[str]:
    got: list[str] = []
    while found := take(connection, 100, whose):
        got += found
    return got


def test_a_full_slot_is_sealed_and_an_empty_one_reclaimed(small: str, connect: Connect) -> None:
    connection = connect(small, autocommit=True)
    fill(connection)
    rotate(connection)
    assert figures(connection) == (0, 1)
    assert len(drain(connection)) == 40
    maintain(connection)
    maintain(connection)
    assert figures(connection) == (1, 1)
    assert one(connection, "select pg_relation_size('mbus.\"qt$q$0\"')") == 0


@pytest.mark.parametrize("has_second", [False, True])
def test_slots_are_used_again_and_again(small: str, connect: Connect, has_second: bool) -> None:
    connection = connect(small, autocommit=True)
    whose = ["q_by_default"]
    if has_second:
        connection.execute("select mbus.create_consumer('q', 'second')")
        whose.append("q_by_second")
    for turn in range(10):
        fill(connection, f"{turn} ")
        rotate(connection)
        for consumer in whose:
            got = drain(connection, consumer)
            assert len(got) == 40
            assert got == sorted(got)
            assert got[0].startswith(f"{turn} ")
        maintain(connection)
        maintain(connection)
    head, tail = figures(connection)
    assert (head, tail) == (10, 10)
    assert one(connection, "select segments from mbus.queues") == 3


def test_with_every_slot_in_use_the_last_one_grows(small: str, connect: Connect) -> None:
    connection = connect(small, autocommit=True)
    for turn in range(6):
        fill(connection, f"{turn} ")
        maintain(connection)
        maintain(connection)
    assert figures(connection) == (0, 2)
    got = drain(connection)
    assert len(got) == 240
    assert got == sorted(got)


@pytest.mark.both_versions
def test_order_is_kept_across_slots(small: str, connect: Connect) -> None:
    connection = connect(small, autocommit=True)
    fill(connection, "a")
    rotate(connection)
    fill(connection, "b")
    rotate(connection)
    fill(connection, "c")
    assert [name[0] for name in drain(connection)] == ["a"] * 40 + ["b"] * 40 + ["c"] * 40


def test_a_late_commit_into_a_sealed_slot_is_not_lost(small: str, connect: Connect) -> None:
    late, connection = connect(small), connect(small, autocommit=True)
    post(late, "late")
    fill(connection)
    rotate(connection)
    assert len(drain(connection)) == 40
    for _ in range(3):
        maintain(connection)
    assert figures(connection) == (0, 1)
    late.commit()
    assert drain(connection) == ["late"]
    maintain(connection)
    maintain(connection)
    assert figures(connection) == (1, 1)


def test_a_late_rollback_of_a_take_is_not_lost(small: str, connect: Connect) -> None:
    holder, connection = connect(small), connect(small, autocommit=True)
    post(connection, "held")
    fill(connection)
    rotate(connection)
    assert take(holder, 1) == ["held"]
    assert len(drain(connection)) == 40
    for _ in range(3):
        maintain(connection)
    holder.rollback()
    assert drain(connection) == ["held"]


def test_a_late_rollback_is_not_lost_in_the_current_slot_either(
    live: str, connect: Connect
) -> None:
    holder, late, connection = connect(live), connect(live), connect(live, autocommit=True)
    post_many(connection, 3)
    post(late, "late")
    assert take(holder, 1) == ["1"]
    assert take(connection) == ["2", "3"]
    maintain(connection)
    maintain(connection)
    holder.rollback()
    assert take(connection) == ["1"]
    maintain(connection)
    late.commit()
    assert take(connection) == ["late"]


def test_maintenance_in_a_transaction_that_took_and_rolls_back_loses_nothing(
    live: str, connect: Connect
) -> None:
    connection = connect(live)
    post_many(connection, 3)
    connection.commit()
    assert take(connection, 2) == ["1", "2"]
    maintain(connection)
    connection.rollback()
    assert take(connection) == ["1", "2", "3"]


def test_what_was_noted_of_a_dropped_queue_does_not_count_for_the_next(
    live: str, connect: Connect
) -> None:
    connection, late = connect(live, autocommit=True), connect(live)
    post_many(connection, 100)
    drain(connection)
    maintain(connection)
    connection.execute("select mbus.drop_queue('q')")
    connection.execute("select mbus.create_queue('q')")
    post(late, "late")
    maintain(connection)
    maintain(connection)
    late.commit()
    assert drain(connection) == ["late"]


def test_a_held_snapshot_does_not_stop_truncation(small: str, connect: Connect) -> None:
    reader, connection = connect(small), connect(small, autocommit=True)
    reader.execute("set transaction isolation level repeatable read")
    one(reader, "select count(*) from mbus.queue")
    for _ in range(4):
        fill(connection)
        rotate(connection)
        drain(connection)
        maintain(connection)
        maintain(connection)
    head, tail = figures(connection)
    assert head == tail == 4
    sizes = rows(
        connection,
        "select pg_relation_size(oid) from pg_class where relname ~ '^qt\\$q\\$[0-9]+$'",
    )
    assert [size for (size,) in sizes] == [0, 0, 0]


def test_large_payloads_turn_the_ring_too(small: str, connect: Connect) -> None:
    connection = connect(small, autocommit=True)
    connection.execute(
        "select mbus.postn_q(array(select hstore('n', (select string_agg(md5(random()::text), '')"
        " from generate_series(1, 1000 + 0 * n))) from generate_series(1, 5) n))"
    )
    rotate(connection)


def test_two_at_once_share_the_work(live: str, connect: Connect, clock: DatabaseClock) -> None:
    first, second, third = connect(live), connect(live), connect(live, autocommit=True)
    for number in range(10):
        post(first, number, delayed_until=one(first, "select mbus.now() + interval '1 minute'"))
    first.commit()
    clock.advance(2 * MINUTE)
    second.execute("set statement_timeout = '10s'")
    assert maintain(first)["q"]["released"] == 10
    assert maintain(second) == {}
    first.commit()
    second.commit()
    assert maintain(third).get("q", {}).get("released", 0) == 0
    assert take(third) == [str(n) for n in range(10)]


def test_maintenance_of_one_session_does_not_wait_for_takers(live: str, connect: Connect) -> None:
    holder, poster, keeper = connect(live), connect(live), connect(live, autocommit=True)
    post_many(keeper, 2)
    post(poster, 3)
    take(holder, 1)
    keeper.execute("set lock_timeout = '1ms'")
    maintain(keeper)
    holder.commit()
    poster.commit()
    assert take(keeper) == ["2", "3"]


def test_without_any_maintenance_everything_due_comes_once(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    first, second = connect(live, autocommit=True), connect(live, autocommit=True)
    post(first, "delayed", delayed_until=one(first, "select mbus.now() + interval '1 minute'"))
    post(first, "leased")
    lease(first)
    post(first, "high", "priority=>high")
    clock.advance(2 * MINUTE)
    assert sorted(take(first) + take(second)) == ["delayed", "high", "leased"]
    assert take(first) + take(second) == []


def test_maintenance_of_all_queues_reports_those_where_it_did_something(
    live: str, connect: Connect
) -> None:
    connection = connect(live, autocommit=True)
    connection.execute("select mbus.create_queue('idle')")
    maintain(connection, None)
    post(connection, 1)
    take(connection)
    assert set(maintain(connection, None)) == {"q"}
    assert maintain(connection, None) == {}


def test_maintenance_finds_due_messages_of_queues_at_rest(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    connection = connect(live, autocommit=True)
    post(connection, 1, delayed_until=one(connection, "select mbus.now() + interval '1 minute'"))
    post(connection, 2)
    lease(connection)
    for _ in range(3):
        maintain(connection, None)
    clock.advance(MINUTE)
    done = maintain(connection, None)["q"]
    assert (done["released"], done["ended"]) == (1, 1)
    assert status(connection, "ready") == 2


def test_a_lease_survives_the_slot_it_came_from(small: str, connect: Connect) -> None:
    connection = connect(small, autocommit=True)
    post(connection, "leased")
    ((_, iid, token, _),) = lease(connection)
    fill(connection)
    rotate(connection)
    drain(connection)
    maintain(connection)
    maintain(connection)
    assert figures(connection) == (0, 1)
    ack(connection, iid, token)
    maintain(connection)
    assert figures(connection) == (1, 1)


def test_without_maintenance_a_consumer_leaves_the_retries_of_another_alone(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    first, second = connect(live), connect(live)
    first.execute("select mbus.create_consumer('q', 'second')")
    post(first, 1)
    first.commit()
    ((_, iid, token, _),) = lease(second, whose="q_by_second")
    nack(second, iid, token, delay="1 second")
    second.commit()
    clock.advance(timedelta(seconds=9))
    nobody_maintains(first)
    first.commit()
    # The first consumer's transaction stays open, and the second gets its retry all the same.
    assert take(first) == ["1"]
    assert take(second, whose="q_by_second") == ["1"]


def test_a_delayed_message_that_was_committed_late_is_not_passed_by(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    late, keeper = connect(live), connect(live, autocommit=True)
    maintain(keeper, None)
    due = one(keeper, "select mbus.now() + interval '1 second'")
    late.execute("select mbus.post_q('n=>1', delayed_until => %s)", (due,))
    maintain(keeper, None)
    for _ in range(5):
        clock.advance(timedelta(seconds=7))
        maintain(keeper, None)
    late.commit()
    maintain(keeper, None)
    assert one(keeper, "select count(*) from mbus.delayed") == 0
    assert take(keeper) == ["1"]


def test_a_caller_at_even_times_finds_what_was_missed(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    """Now and then a run searches everything, at whatever times it is called."""
    owner = connect(live, autocommit=True)
    clock.stop()
    # A message that came due before the last runs of this session.
    later = timedelta(hours=1, seconds=1 - clock.now().timestamp() % 1024, milliseconds=500)
    clock.advance(later)
    for _ in range(3):
        maintain(owner, None)
    clock.advance(-MINUTE)
    post(owner, 1, delayed_until=clock.now() + timedelta(seconds=1))
    clock.advance(MINUTE)
    for _ in range(64):
        maintain(owner, None)
    assert take(owner) == ["1"]
