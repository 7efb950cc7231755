"""Replay: a consumer's past is posted to it again, each message exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock, wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, lease, maintain, nack, one, post, refused, rows, take

MESSAGES = 1_000_000 if os.environ.get("POSTROAD_STRESS") else 20_000
RUNNING = "select count(*) from mbus.replay where finished_at is null"


@pytest.fixture
def kept(live: str, connect: Connect) -> str:
    """Give a database whose queue q retains messages in small segments and has two consumers."""
    with connect(live) as owner:
        owner.execute(
            "create or replace function mbus._slot_bytes() returns bigint"
            " language sql immutable parallel safe return 8192"
        )
        owner.execute("select mbus.alter_queue('q', retain => '7 days')")
        owner.execute("select mbus.create_consumer('q', 'audit')")
    return live


def fill(session: Connection, first: int, last: int) -> None:
    """Post messages and consume them everywhere, so that several segments are retained."""
    for start in range(first, last + 1, 40):
        session.execute(
            "select mbus.postn_q(array(select hstore(array['n', 'x'], array[n::text,"
            " repeat('x', 1000)]) from generate_series(%s::int, %s) n order by n))",
            (start, min(start + 39, last)),
        )
        for consumer in ("default", "audit"):
            while take(session, 100, f"q_by_{consumer}"):
                pass
        for _ in range(3):
            maintain(session, None)


def run(session: Connection) -> None:
    for _ in range(200):
        if not one(session, RUNNING):
            return
        maintain(session, None)
    raise AssertionError(rows(session, "select * from mbus.replay"))


def replay(session: Connection, consumer: str = "default", **given: Any) -> int:
    named = "".join(f", {name} => %s" for name in given)
    return one(session, f"select mbus.replay('q', '{consumer}'{named})", *given.values())


def received(session: Connection, whose: str = "q_by_default") -> list[int]:
    found: list[int] = []
    while batch := take(session, 1000, whose):
        found += map(int, batch)
    return found


@pytest.mark.both_versions
def test_the_past_is_posted_to_one_consumer_in_order(kept: str, connect: Connect) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 300)
    assert one(session, "select count(*) from mbus.retained") > 3
    [first] = rows(session, "select iid, added from mbus.history('q', amt => 1)")
    assert one(session, "select mbus.count_replay('q', 'default')") == 300
    number = replay(session)
    run(session)
    [(iid, headers)] = rows(
        session,
        "select iid, headers from mbus.consume_q_by_default()",
    )
    assert iid == first[0]
    assert one(
        session, "select (%s::hstore -> 'enqueue_time')::timestamptz = %s", headers, first[1]
    )
    assert one(session, "select %s::hstore -> 'replayed'", headers) == str(number)
    assert received(session) == list(range(2, 301))
    assert received(session, "q_by_audit") == []
    assert rows(session, "select state, messages, progress from mbus.replays") == [
        ("finished", 300, 1.0)
    ]
    # What was replayed is not replayed once more.
    replay(session)
    run(session)
    assert received(session) == list(range(1, 301))


def test_times_and_selectors_choose(kept: str, connect: Connect, clock: DatabaseClock) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 100)
    clock.advance(timedelta(hours=1))
    since = one(session, "select mbus.now()")
    fill(session, 101, 200)
    clock.advance(timedelta(hours=1))
    until = one(session, "select mbus.now()")
    fill(session, 201, 300)
    selector = "(t.data->'n')::int % 10 = 0 and t.headers->'destination' = 'q'"
    given = {"since": since, "until": until, "selector": selector}
    expected = list(range(110, 201, 10))
    assert one(
        session, "select mbus.count_replay('q', 'default', %s, %s, %s)", *given.values()
    ) == len(expected)
    number = replay(session, **given)
    run(session)
    assert received(session) == expected
    # The same call is the same replay, until it is asked for again.
    assert replay(session, **given) == number
    run(session)
    assert received(session) == []
    assert replay(session, **given, again=True) > number
    run(session)
    assert received(session) == expected


def test_what_the_consumer_has_yet_to_handle_is_omitted(kept: str, connect: Connect) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 60)
    for number in range(61, 66):
        post(session, number)
    [ready, _, retried, dead, delayed] = lease(session, 5, ttl="1 hour")
    assert nack(session, ready[1], ready[2], delay=timedelta(0)) == "ready"
    assert nack(session, retried[1], retried[2], delay=timedelta(0)) == "ready"
    nack(session, dead[1], dead[2], error="no", park=True)
    nack(session, delayed[1], delayed[2], delay=timedelta(hours=1))
    assert one(session, "select mbus.count_replay('q', 'default')") == 60
    # The other consumer has handled them: they are its past, each once.
    received(session, "q_by_audit")
    replay(session, "audit")
    replay(session)
    run(session)
    assert received(session, "q_by_audit") == list(range(1, 66))
    assert sorted(received(session)) == [*range(1, 61), 61, 63]
    # The retries are copies of messages that are stored, too.
    replay(session)
    run(session)
    assert received(session) == [*range(1, 61), 61, 63]


def test_messages_that_were_delayed_are_replayed_once(
    kept: str, connect: Connect, clock: DatabaseClock
) -> None:
    session = connect(kept, autocommit=True)
    for number in range(3):
        post(session, number, delayed_until=one(session, "select mbus.now() + interval '1 hour'"))
    clock.advance(timedelta(hours=2))
    maintain(session)
    for _, iid, token, _ in lease(session, 3):
        nack(session, iid, token, delay=timedelta(0))
    assert received(session) == [0, 1, 2]
    assert received(session, "q_by_audit") == [0, 1, 2]
    assert len(column(session, "select id from mbus.history('q')")) == 6
    assert one(session, "select mbus.count_replay('q', 'default')") == 3
    replay(session)
    run(session)
    assert received(session) == [0, 1, 2]
    assert one(session, "select count(*) from mbus.replay_copy") == 0


def test_keys_groups_predecessors_followers_and_expiry(
    kept: str, connect: Connect, clock: DatabaseClock
) -> None:
    session = connect(kept, autocommit=True)
    session.execute("select mbus.create_queue('copies'), mbus.create_trigger('q', 'copies')")
    expires = one(session, "select mbus.now() + interval '1 hour'")
    first = post(session, 1, "dedup_key=>k, group=>a", expires=expires)
    post(session, 2, "group=>a")
    post(session, 3, f'consume_after=>"{first}"')
    post(session, 4, "priority=>high")
    for whose in ("q_by_default", "q_by_audit", "copies_by_default") * 3:
        received(session, whose)
        maintain(session)
    assert received(session) == []
    clock.advance(timedelta(hours=2))
    replay(session)
    run(session)
    assert received(session, "copies_by_default") == []
    assert one(session, "select count(*) from mbus.blocked where released_by is null") == 0
    # Of a group only one message at a time, in order; the lane is the same.
    [(high, _, _, _), (a, iid, token, _), (after, _, _, _)] = lease(session, 5)
    assert (high, a, after) == ("4", "1", "3")
    nack(session, iid, token, delay=timedelta(0))
    assert received(session) == [1, 2] or received(session) == [2]


def test_a_stopped_replay_continues_where_it_ended(
    kept: str, connect: Connect, clock: DatabaseClock
) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 200)
    clock.stop()
    number = replay(session, rate=20)
    clock.advance(timedelta(seconds=2))
    maintain(session, None)
    assert received(session) == list(range(1, 41))
    clock.advance(timedelta(seconds=1))
    maintain(session, None)
    assert received(session) == list(range(41, 61))
    assert one(session, "select mbus.stop_replay(%s, 'ops')", number)
    assert not one(session, "select mbus.stop_replay(%s)", number)
    clock.advance(timedelta(seconds=1))
    maintain(session, None)
    assert rows(session, "select state, error, messages from mbus.replays") == [
        ("stopped", "stopped by ops", 60)
    ]
    assert replay(session) == number
    run(session)
    assert received(session) == list(range(61, 201))


def test_a_selector_that_raises_stops_the_replay(kept: str, connect: Connect) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 60)
    replay(session, selector="1 / ((t.data->'n')::int - 50) > 0")
    maintain(session, None)
    assert rows(session, "select state, error, messages from mbus.replays") == [
        ("stopped", "division by zero", 0)
    ]
    fill(session, 61, 70)
    assert one(session, "select mbus.continue_replay(1)")
    assert received(session) == []


def test_segments_wait_for_the_replay_that_has_yet_to_read_them(
    kept: str, connect: Connect, clock: DatabaseClock
) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 200)
    replay(session, rate=50)
    clock.advance(timedelta(days=30))
    for _ in range(6):
        clock.advance(timedelta(seconds=2))
        maintain(session, None)
        maintain(session, None)
    run(session)
    assert received(session) == list(range(1, 201))
    for _ in range(9):
        maintain(session, None)
    # Only the segment of what was replayed just now may be left.
    assert "1" not in column(session, "select data::hstore -> 'n' from mbus.history('q')")[:1]


@pytest.mark.both_versions
def test_a_consumer_begins_in_the_past(kept: str, connect: Connect, clock: DatabaseClock) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 200)
    later = one(session, "select mbus.now() + interval '1 hour'")
    post(session, 201)
    post(session, 202, delayed_until=later)
    session.execute("select mbus.create_consumer('q', 'late', start_from => 'earliest')")
    session.execute(
        "select mbus.create_consumer('q', 'odd', '(t.data->''n'')::int % 2 = 1',"
        " start_from => mbus.now()::text)"
    )
    post(session, 203)
    assert take(session, 10, "q_by_late") == []
    run(session)
    assert sorted(received(session, "q_by_late")) == [*range(1, 202), 203]
    assert received(session, "q_by_odd") == [203]
    clock.advance(timedelta(hours=2))
    maintain(session)
    assert received(session, "q_by_late") == [202]
    assert received(session, "q_by_odd") == []
    assert (
        rows(session, "select state, is_start from mbus.replays order by id")
        == [("finished", True)] * 2
    )
    assert not one(session, "select count(*) from mbus.pause")


def test_nothing_is_skipped_or_doubled_where_a_consumer_begins(kept: str, connect: Connect) -> None:
    """Sessions that know the old functions post before, while and after the consumer is created."""
    session, early, waiting = (connect(kept, autocommit=n == 0) for n in range(3))
    fill(session, 1, 50)
    post(early, 51)
    waiting.execute("select count(*) from mbus.queue")
    post(waiting, 52)
    waiting.commit()
    waiting.execute("select 1")
    session.execute("select mbus.create_consumer('q', 'late', start_from => 'earliest')")
    maintain(session, None)
    # Transactions from before are open: one has posted, the other will.
    post(session, 53)
    maintain(session, None)
    assert rows(session, "select state, messages from mbus.replays") == [("waiting", 0)]
    post(early, 54)
    early.commit()
    maintain(session, None)
    post(waiting, 55)
    waiting.commit()
    post(session, 56)
    run(session)
    post(session, 57)
    assert sorted(received(session, "q_by_late")) == list(range(1, 58))


def test_a_consumer_that_begins_in_the_past_is_not_resumed_before(
    kept: str, connect: Connect
) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 50)
    session.execute("select mbus.create_consumer('q', 'late', start_from => 'earliest')")
    post(session, 51)
    with refused(session, "MB012"):
        one(session, "select mbus.resume('q', 'late')")
    assert received(session, "q_by_late") == []
    run(session)
    assert sorted(received(session, "q_by_late")) == list(range(1, 52))


def test_who_resumes_a_consumer_after_its_replay_was_stopped_gives_up_its_past(
    kept: str, connect: Connect
) -> None:
    session = connect(kept, autocommit=True)
    fill(session, 1, 50)
    session.execute("select mbus.create_consumer('q', 'late', start_from => 'earliest')")
    post(session, 51)
    assert column(session, "select mbus.stop_replay(id) from mbus.replays") == [True]
    assert one(session, "select mbus.resume('q', 'late')")
    assert received(session, "q_by_late") == [51]
    # Continued, it would post what was consumed in the meantime.
    post(session, 52)
    assert received(session, "q_by_late") == [52]
    assert column(session, "select mbus.continue_replay(id) from mbus.replays") == [False]
    maintain(session, None)
    assert received(session, "q_by_late") == []


@pytest.mark.parametrize("dropped", ["queue", "consumer"])
def test_a_running_replay_does_not_deadlock_with_the_drop_of_its_consumer(
    kept: str, connect: Connect, in_thread: InThread, dropped: str
) -> None:
    owner, observer, session = (connect(kept, autocommit=n < 2) for n in range(3))
    fill(owner, 1, 50)
    replay(owner)
    # As maintenance does: the row of the replay, then posts.
    session.execute("select from mbus.replay for no key update")
    call = {"queue": "drop_queue('q')", "consumer": "drop_consumer('q', 'default')"}[dropped]
    dropping = in_thread(owner.execute, f"select mbus.{call}".encode())
    wait_until_blocked(observer, owner.info.backend_pid)
    post(session, 51)
    session.commit()
    dropping.result(30)
    assert not one(observer, "select count(*) from mbus.replay")


def test_posters_and_a_consumer_that_begins_meanwhile(
    kept: str, connect: Connect, in_thread: InThread
) -> None:
    def post_on(name: int) -> None:
        poster = connect(kept, autocommit=True)
        for number in range(300):
            post(poster, name * 1000 + number)

    others = [in_thread(post_on, name) for name in (1, 2)]
    session = connect(kept, autocommit=True)
    session.execute("select mbus.create_consumer('q', 'late', start_from => 'earliest')")
    for other in others:
        other.result(60)
    run(session)
    counts = Counter(received(session, "q_by_late"))
    assert counts == Counter(name * 1000 + number for name in (1, 2) for number in range(300))


def test_messages_of_sagas_are_omitted(kept: str, connect: Connect) -> None:
    session = connect(kept, autocommit=True)
    plan, data = '[{"name": "a", "do": "q"}]', '{"n": "1"}'
    session.execute("select mbus.create_saga('trip', %s, %s)", (plan, data))
    post(session, 2)
    for whose in ("q_by_default", "q_by_audit") * 2:
        received(session, whose)
        maintain(session, None)
    assert sorted(column(session, "select data::hstore -> 'n' from mbus.history('q')")) == [
        "1",
        "2",
    ]
    replay(session)
    run(session)
    assert received(session) == [2]


@pytest.mark.timeout(1800)
def test_maintenance_that_is_killed_replays_each_message_once(kept: str, connect: Connect) -> None:
    """Killed three times while it replays; its batches are committed with their position."""
    session = connect(kept, autocommit=True)
    session.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 8388608"
    )
    for first in range(1, MESSAGES, 20_000):
        session.execute(
            "select mbus.postn_q(array(select hstore('n', n::text)"
            " from generate_series(%s::int, %s) n order by n))",
            (first, min(first + 19_999, MESSAGES)),
        )
        while take(session, 20_000) or take(session, 20_000, "q_by_audit"):
            maintain(session, None)
    number = replay(session)
    counts: Counter[int] = Counter()
    for part in (1, 2, 3, 4):
        with killed_at_exit(kept) as maintenance:
            bound = MESSAGES * part // 4 if part < 4 else MESSAGES
            while one(session, "select messages from mbus.replays") < bound:
                assert maintenance.poll() is None
                counts.update(map(int, take(session, 20_000)))
        assert replay(session) == number or part == 4
    while batch := take(session, 20_000):
        counts.update(map(int, batch))
    assert rows(session, "select messages from mbus.replays where id = %s", number) == [(MESSAGES,)]
    assert counts == Counter(range(1, MESSAGES + 1))


@contextmanager
def killed_at_exit(dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run maintenance in a process of its own, and kill it."""
    code = (
        "import sys, threading; from datetime import timedelta\n"
        "from postroad.bus import Maintenance\n"
        "with Maintenance(sys.argv[1], timedelta(milliseconds=20)): threading.Event().wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, dsn])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_what_cannot_be_replayed_is_refused(bus: Connection) -> None:
    with refused(bus, "MB012"):
        replay(bus)
    bus.execute("select mbus.alter_queue('q', retain => '1 day')")
    with refused(bus, "MB012"):
        replay(bus, rate=0)
    with refused(bus, "MB008"):
        replay(bus, selector="t.nothing = 1")
    with refused(bus, "MB002"):
        replay(bus, "nobody")
    with refused(bus, "MB012"):
        bus.execute("select mbus.create_consumer('q', 'c', start_from => 'yesterday noon-ish')")
    assert not one(bus, "select mbus.continue_replay(1)")
