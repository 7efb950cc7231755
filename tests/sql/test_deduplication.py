"""A key with a window: posting again gives the first iid and no second message."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock, wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import maintain, one, post, refused, shift_clock, take

pytestmark = pytest.mark.both_versions


def test_the_same_key_gives_the_first_iid_and_one_message(bus: Connection) -> None:
    first = post(bus, 1, "dedup_key=>k")
    assert post(bus, 2, "dedup_key=>k") == first
    assert post(bus, 3, "dedup_key=>other") != first
    assert take(bus) == ["1", "3"]


def test_a_consumed_message_still_holds_its_key(bus: Connection) -> None:
    first = post(bus, 1, "dedup_key=>k")
    take(bus)
    assert post(bus, 2, "dedup_key=>k") == first
    assert take(bus) == []


def test_a_delayed_message_holds_its_key(bus: Connection) -> None:
    first = post(bus, 1, "dedup_key=>k", delayed_until="2100-01-01")
    assert post(bus, 2, "dedup_key=>k") == first
    assert take(bus) == []


def test_keys_belong_to_their_queue(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('other')")
    post(bus, 1, "dedup_key=>k")
    post(bus, 2, "dedup_key=>k", queue="other")
    assert take(bus, whose="other_by_default") == ["2"]


def test_after_the_window_the_key_is_free(bus: Connection) -> None:
    first = post(bus, 1, "dedup_key=>k")
    short = post(bus, 1, 'dedup_key=>s, dedup_window=>"1 minute"')
    shift_clock(bus, timedelta(minutes=2))
    assert post(bus, 2, "dedup_key=>k") == first
    assert post(bus, 2, "dedup_key=>s") != short
    shift_clock(bus, timedelta(minutes=61))
    assert post(bus, 2, "dedup_key=>k") != first


def test_the_window_begins_with_the_first_post(bus: Connection) -> None:
    first = post(bus, 1, "dedup_key=>k")
    shift_clock(bus, timedelta(minutes=59))
    post(bus, 2, "dedup_key=>k")
    shift_clock(bus, timedelta(minutes=61))
    assert post(bus, 3, "dedup_key=>k") != first


@pytest.fixture
def full(live: str, connect: Connect) -> Connection:
    """Give a session on a bus whose tables of keys are full with the first key."""
    owner = connect(live, autocommit=True)
    owner.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 16384"
    )
    return owner


def test_maintenance_forgets_ended_windows(full: Connection, clock: DatabaseClock) -> None:
    post(full, 1, "dedup_key=>k")
    for _ in range(3):
        maintain(full, None)
    assert one(full, "select count(*) from mbus.dedup") == 1
    post(full, 1, "dedup_key=>l")
    clock.advance(timedelta(hours=2))
    for _ in range(5):
        maintain(full, None)
    assert one(full, "select count(*) from mbus.dedup") == 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_posts_of_one_key_meet_while_another_table_is_opened(
    full: Connection, live: str, connect: Connect, in_thread: InThread, is_committed: bool
) -> None:
    post(full, 0, "dedup_key=>other")
    first, second = connect(live), connect(live)
    iid = post(first, 1, "dedup_key=>k")
    for _ in range(3):  # which waits for the first session
        maintain(full, None)
    assert one(full, "select last_value from mbus.dedup_tail") == 1
    posted = in_thread(post, second, 2, "dedup_key=>k")
    wait_until_blocked(connect(live), second.info.backend_pid)
    first.commit() if is_committed else first.rollback()
    iid_again = posted.result()
    assert (iid_again == iid) == is_committed
    second.commit()
    maintain(full, None)
    assert one(full, "select last_value from mbus.dedup_tail") == 4
    assert post(full, 3, "dedup_key=>k") == iid_again
    assert len(take(full)) == 2


def test_sessions_at_once_post_each_key_once_while_tables_are_opened(
    full: Connection, live: str, connect: Connect
) -> None:
    sessions = [connect(live) for _ in range(4)]
    tables = set()

    def post_all(session: Connection) -> None:
        for key in range(150):
            post(session, key, f"dedup_key=>{key}")
            session.commit()

    with ThreadPoolExecutor(len(sessions)) as pool:
        posting = [pool.submit(post_all, session) for session in sessions]
        while not all(each.done() for each in posting):
            maintain(full, None)
            tables.add(one(full, "select last_value from mbus.dedup_tail"))
        for each in posting:
            each.result()
    assert len(tables) > 2
    assert sorted(map(int, take(full, 1000))) == list(range(150))


def test_a_long_window_outlives_its_table(full: Connection, clock: DatabaseClock) -> None:
    iid = post(full, 1, 'dedup_key=>k, dedup_window=>"1 year"')
    for number in range(30):
        clock.advance(timedelta(minutes=1))
        post(full, number, f'dedup_key=>"{number}", dedup_window=>"1 second"')
        maintain(full, None)
    assert one(full, "select count(*) from mbus.dedup") < 10
    assert post(full, 2, "dedup_key=>k") == iid


def test_an_older_snapshot_does_not_hide_a_key(
    full: Connection, live: str, connect: Connect
) -> None:
    old = connect(live)
    old.execute("set transaction isolation level repeatable read")
    old.execute("select 1 from mbus.queue")
    post(full, 1, "dedup_key=>k")
    for _ in range(3):
        maintain(full, None)
    assert one(full, "select last_value from mbus.dedup_tail") == 4
    with refused(old, "40001"):
        post(old, 2, "dedup_key=>k")


def test_a_window_that_is_no_interval_is_refused(bus: Connection) -> None:
    for window in ("soon", "-1 hour"):
        with refused(bus, "MB012"):
            post(bus, 1, f'dedup_key=>k, dedup_window=>"{window}"')


def test_the_second_of_two_sessions_waits_and_gets_the_first_iid(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    first, second, observer = connect(live), connect(live), connect(live)
    iid = post(first, 1, "dedup_key=>k")
    posting = in_thread(post, second, 2, "dedup_key=>k")
    wait_until_blocked(observer, second.info.backend_pid)
    first.commit()
    assert posting.result() == iid
    second.commit()
    assert take(observer) == ["1"]


def test_when_the_first_is_rolled_back_the_second_is_posted(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    first, second, observer = connect(live), connect(live), connect(live)
    iid = post(first, 1, "dedup_key=>k")
    posting = in_thread(post, second, 2, "dedup_key=>k")
    wait_until_blocked(observer, second.info.backend_pid)
    first.rollback()
    assert posting.result() != iid
    second.commit()
    assert take(observer) == ["2"]
