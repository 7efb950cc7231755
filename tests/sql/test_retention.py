"""Retention: consumed messages stay readable in closed segments, which are dropped as a whole."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import ack, column, lease, maintain, nack, one, post, refused, rows, take

BATCH = 40
SEGMENTS = "select relname from pg_class where relname ~ '^qr[$][0-9]+$' order by oid"


@pytest.fixture
def small(live: str, connect: Connect) -> str:
    """Give a database whose ring rotates after a few kilobytes; queue q retains its messages."""
    with connect(live) as owner:
        owner.execute(
            "create or replace function mbus._slot_bytes() returns bigint"
            " language sql immutable parallel safe return 8192"
        )
        owner.execute("select mbus.drop_queue('q'), mbus.create_queue('q', 4)")
        owner.execute("select mbus.alter_queue('q', retain => '7 days')")
    return live


def fill(connection: Connection, first: int) -> None:
    """Post as many messages as a slot holds, numbered from `first`."""
    connection.execute(
        "select mbus.postn_q(array(select hstore(array['n', 'text'], array[n::text,"
        " repeat('x', 1000)]) from generate_series(%s::integer, %s) n))",
        (first, first + BATCH - 1),
    )


def turn(connection: Connection, rounds: int, first: int = 0) -> int:
    """Post, take and maintain; return the number after the last message."""
    for number in range(rounds):
        fill(connection, first + number * BATCH)
        while take(connection):
            pass
        settle(connection)
    return first + rounds * BATCH


def settle(connection: Connection) -> None:
    for _ in range(3):
        maintain(connection)


def history(connection: Connection, **given: object) -> list[int]:
    named = "".join(f", {name} => %s" for name in given)
    query = f"select (data::hstore -> 'n')::int from mbus.history('q', amt => 100000{named})"
    return column(connection, query, *given.values())


def test_tables_that_replace_retained_ones_have_the_index_of_a_limited_consumer(
    small: str, connect: Connect
) -> None:
    session = connect(small, autocommit=True)
    session.execute("select mbus.limit_consumer('q', 'default', key => 'partner')")
    turn(session, 6)
    missing = (
        "select t.payload_table from mbus.queue q, mbus._tables(q) t where not exists (select from"
        " pg_indexes i where i.tablename = t.payload_table and i.indexname like 'key$%')"
    )
    assert column(session, missing) == []


@pytest.mark.both_versions
def test_consumed_messages_stay_readable_in_order(small: str, connect: Connect) -> None:
    session = connect(small, autocommit=True)
    last = turn(session, 6)
    assert history(session) == list(range(last))
    assert len(column(session, SEGMENTS)) >= 4
    iid, added, headers, data = rows(
        session, "select iid, added, headers, data from mbus.history('q', amt => 1)"
    )[0]
    assert iid.startswith("q.1@")
    assert '"destination"=>"q"' in headers
    assert '"n"=>"0"' in data
    # Pages, a time, a selector.
    third = rows(session, "select id from mbus.history('q', amt => 100)")[-1][0]
    assert history(session, place=third) == list(range(100, last))
    middle = one(session, "select added from mbus.history('q', place => %s, amt => 1)", third)
    assert history(session, until=middle)[-1] < 100
    assert history(session, since=middle)[-1] == last - 1
    assert history(session, selector="(t.data->'n')::int % 50 = 7") == [
        n for n in range(last) if n % 50 == 7
    ]
    kept, since = rows(session, "select retained, retained_since from mbus.queues")[0]
    assert kept >= 4 * BATCH
    assert since == added


def test_without_retention_nothing_is_kept(live: str, connect: Connect) -> None:
    session = connect(live, autocommit=True)
    turn(session, 2)
    assert history(session) == []
    assert column(session, SEGMENTS) == []


def test_segments_are_dropped_by_age(small: str, connect: Connect, clock: DatabaseClock) -> None:
    session = connect(small, autocommit=True)
    last = turn(session, 4)
    before = column(session, SEGMENTS)
    clock.advance(timedelta(days=4))
    last = turn(session, 4, last)
    assert history(session) == list(range(last))
    clock.advance(timedelta(days=4))
    maintain(session)
    left = column(session, SEGMENTS)
    assert left
    assert not set(left) & set(before)
    assert history(session)[-1] == last - 1
    assert one(session, "select count(*) from mbus.retained") == len(left)


def test_segments_are_dropped_by_size(small: str, connect: Connect) -> None:
    session = connect(small, autocommit=True)
    last = turn(session, 3)
    size = one(session, "select max(bytes) from mbus.retained")
    session.execute("select mbus.alter_queue('q', retain_size => %s)", (2 * size,))
    last = turn(session, 6, last)
    maintain(session)
    assert one(session, "select sum(bytes) from mbus.retained") <= 2 * size
    assert history(session) == list(range(history(session)[0], last))
    assert rows(session, "select retain, retain_size from mbus.queues") == [
        (timedelta(days=7), 2 * size)
    ]


def test_a_quiet_queue_seals_its_slot_by_age(
    small: str, connect: Connect, clock: DatabaseClock
) -> None:
    session = connect(small, autocommit=True)
    post(session, 1)
    assert take(session) == ["1"]
    settle(session)
    assert column(session, SEGMENTS) == []
    clock.advance(timedelta(days=1))
    settle(session)
    assert len(column(session, SEGMENTS)) == 1
    clock.advance(timedelta(days=8))
    settle(session)
    assert column(session, SEGMENTS) == []
    assert history(session) == []


def test_a_segment_that_is_read_is_dropped_later(
    small: str, connect: Connect, clock: DatabaseClock
) -> None:
    session, reader = connect(small, autocommit=True), connect(small)
    last = turn(session, 3)
    reader.execute("begin isolation level repeatable read")
    assert history(reader) == list(range(last))
    clock.advance(timedelta(days=8))
    maintain(session)
    assert history(reader) == list(range(last))
    reader.rollback()
    maintain(session)
    assert column(session, SEGMENTS) == []


def test_a_held_snapshot_does_not_stop_retention(small: str, connect: Connect) -> None:
    session, holder = connect(small, autocommit=True), connect(small)
    holder.execute("begin isolation level repeatable read")
    holder.execute("select count(*) from mbus.queue")
    last = turn(session, 6)
    assert len(column(session, SEGMENTS)) >= 4
    assert history(session) == list(range(last))
    # Its own snapshot is older than the messages.
    assert history(holder) == []


def test_turning_it_on_and_off_loses_no_message(live: str, connect: Connect) -> None:
    session, other = connect(live, autocommit=True), connect(live)
    for number in range(4):
        post(session, number)
    [(_, iid, token, _), (_, late, late_token, _)] = lease(session, 2)
    assert take(other, 1) == ["2"]
    session.execute("alter function mbus.alter_queue set lock_timeout = '100ms'")
    with refused(session, "MB017"):
        session.execute("select mbus.alter_queue('q', retain => '1 day')")
    other.rollback()
    session.execute("select mbus.alter_queue('q', retain => '1 day')")
    ack(session, iid, token)
    assert nack(session, late, late_token, delay=timedelta(0)) == "ready"
    assert take(session) == ["2", "3", "1"]
    assert sorted(set(history(session))) == [0, 1, 2, 3]
    session.execute("select mbus.alter_queue('q', retain => '0')")
    post(session, 4)
    settle(session)
    assert take(session) == ["4"]
    assert rows(session, "select retain, retain_size, mode from mbus.queues") == [
        (None, None, "fanout")
    ]


def test_segments_go_when_retention_is_turned_off_or_the_queue_is_dropped(
    small: str, connect: Connect
) -> None:
    session = connect(small, autocommit=True)
    turn(session, 3)
    session.execute("select mbus.alter_queue('q', retain => '0')")
    maintain(session)
    assert column(session, SEGMENTS) == []
    session.execute("select mbus.alter_queue('q', retain_size => 1000000000)")
    turn(session, 3)
    assert column(session, SEGMENTS)
    session.execute("select mbus.drop_queue('q')")
    for _ in range(8):
        maintain(session, None)
    assert column(session, SEGMENTS) == []
    assert one(session, "select count(*) from mbus.retained") == 0


def test_views_of_a_queue_follow_its_new_tables(small: str, connect: Connect) -> None:
    session = connect(small, autocommit=True)
    session.execute("select mbus.create_view('q')")
    last = turn(session, 5)
    session.execute("insert into public.q_q (data) values ('n=>here')")
    assert column(session, "select data -> 'n' from public.q_q") == ["here"]
    assert history(session, selector="t.data->'n' ~ '^[0-9]+$'") == list(range(last))


@pytest.mark.both_versions
def test_nothing_is_lost_between_posts_takes_and_retention(
    small: str, connect: Connect, in_thread: InThread
) -> None:
    """Sessions with cached plans post and take while slots become segments beside them."""
    stopping = threading.Event()
    taken: list[list[str]] = [[], []]

    def maintain_on() -> None:
        session = connect(small, autocommit=True)
        while not stopping.is_set():
            maintain(session)

    def take_on(mine: list[str]) -> None:
        session = connect(small, autocommit=True)
        while (found := take(session, 7)) or not stopping.is_set():
            mine += found

    def post_on(name: str) -> list[str]:
        session = connect(small, autocommit=True)
        posted: list[str] = []
        while len(posted) < 400 or not column(session, SEGMENTS):
            posted.append(f"{name}{len(posted)}")
            session.execute("select mbus.post_q(hstore('n', %s))", (posted[-1] + "x" * 900,))
        return posted

    others = [in_thread(maintain_on), *(in_thread(take_on, mine) for mine in taken)]
    posts = [in_thread(post_on, name) for name in "ab"]
    expected = [text for each in posts for text in each.result(60)]
    stopping.set()
    for each in others:
        each.result(60)
    numbers = [text.rstrip("x") for mine in taken for text in mine]
    assert sorted(numbers) == sorted(expected)
    session = connect(small, autocommit=True)
    stored = column(session, "select data::hstore -> 'n' from mbus.history('q', amt => 100000)")
    assert sorted(text.rstrip("x") for text in stored) == sorted(expected)


def test_what_cannot_be_altered_is_refused(bus: Connection) -> None:
    for wrong in ("retain => '-1 day'", "retain_size => -1", "retain => null"):
        with refused(bus, "MB012"):
            bus.execute(f"select mbus.alter_queue('q', {wrong})".encode())
    with refused(bus, "MB008"):
        history(bus, selector="t.nothing = 1")


def test_a_queue_that_has_one_slot_lists_consumed_messages(live: str, connect: Connect) -> None:
    with connect(live) as session:
        iid = post(session, 1)
        post(session, 2)
        session.execute("select mbus.alter_queue('q', retain => '7 days')")
        assert take(session, 1) == ["1"]
        listed = "select iid from mbus.browse('q', state => 'retained') where is_match"
        assert column(session, listed) == [iid]
