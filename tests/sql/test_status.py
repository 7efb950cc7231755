"""The figures of mbus.status."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock
from tests.fixtures.postgres import Connect
from tests.sql.calls import (
    lease,
    maintain,
    nack,
    one,
    post,
    post_many,
    rows,
    shift_clock,
    status,
    take,
)

pytestmark = pytest.mark.both_versions

COUNTS = "depth, ready, delayed, leased, dmq, is_estimate"


def counts(connection: Connection, consumer: str = "default") -> tuple[object, ...]:
    return rows(connection, f"select {COUNTS} from mbus.status where consumer = %s", consumer)[0]


def test_an_empty_queue_shows_zeros(bus: Connection) -> None:
    assert counts(bus) == (0, 0, 0, 0, 0, False)
    assert status(bus, "oldest_age") is None


@pytest.mark.parametrize("has_second", [False, True])
def test_every_message_is_counted_where_it_waits(bus: Connection, has_second: bool) -> None:
    if has_second:
        bus.execute("select mbus.create_consumer('q', 'second')")
    post_many(bus, 6)
    post(bus, 7, "priority=>high")
    post(bus, 8, delayed_until="2100-01-01")
    (_, iid, token, _), _ = lease(bus, 2)
    nack(bus, iid, token, park=True)
    assert take(bus, 1) == ["2"]
    assert counts(bus) == (6, 4, 1, 1, 1, False)
    if has_second:
        assert counts(bus, "second") == (8, 7, 1, 0, 0, False)


def test_a_selector_counts_only_what_it_lets_pass(bus: Connection) -> None:
    bus.execute(
        "select mbus.create_consumer('q', 'odd', $$(t.data->'n')::integer in (1, 3, 5, 7, 9)$$)"
    )
    post_many(bus, 9)
    assert counts(bus, "odd")[1] == 5
    assert counts(bus)[1] == 9


def test_the_age_is_that_of_the_oldest_message_that_is_ready(bus: Connection) -> None:
    post(bus, 1)
    shift_clock(bus, timedelta(minutes=10))
    post(bus, 2)
    assert timedelta(minutes=10) <= status(bus, "oldest_age") < timedelta(minutes=11)
    take(bus, 1)
    assert status(bus, "oldest_age") < timedelta(minutes=1)


def test_a_long_queue_is_estimated_without_scanning(live: str, connect: Connect) -> None:
    connection = connect(live, autocommit=True)
    post_many(connection, 30000)
    take(connection, 5000)
    ready, is_estimate = rows(connection, "select ready, is_estimate from mbus.status")[0]
    assert is_estimate
    assert 24000 <= ready <= 26000


RATES = (
    "select round((consumed_per_second * 15)::numeric), round((died_per_second * 15)::numeric),"
    " round((expired_per_second * 15)::numeric), round((rejected_per_second * 15)::numeric)"
    " from mbus.status where queue = 'q'"
)


def test_the_posting_rate_comes_from_the_samples_of_maintenance(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    connection = connect(live, autocommit=True)
    assert rows(connection, "select posted_per_second from mbus.status") == [(None,)]
    post(connection, 0)
    maintain(connection)
    clock.advance(timedelta(seconds=100))
    post_many(connection, 1000)
    maintain(connection)
    posted = "select posted_per_second from mbus.status"
    assert one(connection, posted) == pytest.approx(10, rel=0.1)
    # A queue that rests is not sampled any more.
    clock.advance(timedelta(minutes=1))
    assert one(connection, posted) == 0


def test_messages_that_nobody_took_are_not_counted_as_consumed(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    connection, poster = connect(live, autocommit=True), connect(live)
    post(connection, 0)
    maintain(connection)
    # Posted and not yet committed: the position has moved, the messages are not visible.
    post_many(poster, 1000)
    clock.advance(timedelta(seconds=11))
    maintain(connection)
    assert rows(connection, RATES) == [(0, 0, 0, 0)]
    poster.commit()
    assert rows(connection, RATES) == [(0, 0, 0, 0)]


def test_what_happened_to_messages_is_counted_by_its_kind(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    connection = connect(live, autocommit=True)
    post_many(connection, 10)
    take(connection, 2)
    for park in (True, False):
        iid, token = rows(connection, "select iid, token from mbus.lease_q_by_default(1)")[0]
        rows(connection, "select mbus.nack(%s, %s, '1 hour', 'wrong', %s)", iid, token, park)
    held = rows(connection, "select iid, token from mbus.lease_q_by_default(3)")
    rows(connection, "select mbus.ackn(%s, %s)", *map(list, zip(*held, strict=True)))
    rows(connection, "select mbus.post('q', 'n=>1', expires => mbus.now() + interval '1 second')")
    clock.advance(timedelta(seconds=3))
    # An idle session writes what it has counted with its next take, also an empty one.
    maintain(connection)
    take(connection, 0)
    assert rows(connection, RATES) == [(5, 1, 1, 1)]
    assert rows(connection, "select mbus.purge('q')") == [(3,)]
    clock.advance(timedelta(seconds=4))
    take(connection, 1)
    assert rows(connection, RATES) == [(5, 1, 1, 1)]


def test_a_take_that_was_rolled_back_is_not_counted(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    connection = connect(live)
    post_many(connection, 10)
    connection.commit()
    for _ in range(3):
        take(connection, 2)
        connection.rollback()
        clock.advance(timedelta(seconds=4))
    take(connection, 1)
    connection.commit()
    assert rows(connection, RATES) == [(1, 0, 0, 0)]


@pytest.mark.parametrize("value", ["nonsense", "-1", "9" * 40, ""])
def test_a_setting_of_the_session_that_is_no_count_stops_nothing(
    bus: Connection, value: str
) -> None:
    consumer = one(bus, "select id from mbus.consumer")
    post(bus, 1)
    post(bus, 2)
    for kind in ("consumed", "died"):
        rows(bus, "select set_config(%s, %s, false)", f"mbus.{kind}_{consumer}", value)
    assert take(bus, 1) == ["1"]
    iid, token = rows(bus, "select iid, token from mbus.lease_q_by_default(1)")[0]
    assert one(bus, "select mbus.nack(%s, %s, park => true)", iid, token) == "dmq"
    assert rows(bus, RATES) == [(1, 1, 0, 0)]


def test_tallies_are_not_kept_for_ever(live: str, connect: Connect, clock: DatabaseClock) -> None:
    connection = connect(live, autocommit=True)
    for _ in range(3):
        post(connection, 1)
        take(connection, 1)
        clock.advance(timedelta(minutes=2))
    maintain(connection, "q")
    assert one(connection, "select count(*) from mbus.tally") == 0


def test_samples_are_not_kept_for_ever(live: str, connect: Connect, clock: DatabaseClock) -> None:
    connection = connect(live, autocommit=True)
    for _ in range(5):
        post(connection, 1)
        maintain(connection)
        clock.advance(timedelta(minutes=6))
    assert one(connection, "select count(*) from mbus.sample") <= 3


def test_a_queue_that_is_dropped_meanwhile_shows_zeros(database: str, connect: Connect) -> None:
    first, second = connect(database, autocommit=True), connect(database)
    first.execute("select mbus.create_queue('dropped')")
    post(first, "k=>v", queue="dropped")
    second.execute("begin isolation level repeatable read")
    assert rows(second, "select ready from mbus.status") == [(1,)]
    second.execute("rollback")
    second.execute("begin isolation level repeatable read")
    second.execute("select 1 from mbus.queue")
    first.execute("select mbus.drop_queue('dropped')")
    assert rows(second, "select queue, depth, oldest_age from mbus.status") == [
        ("dropped", 0, None)
    ]
