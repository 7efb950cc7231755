"""A key with a window: posting again gives the first iid and no second message."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import wait_until_blocked
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


def test_maintenance_forgets_ended_windows(bus: Connection) -> None:
    post(bus, 1, "dedup_key=>k")
    maintain(bus)
    assert one(bus, "select count(*) from mbus.dedup") == 1
    shift_clock(bus, timedelta(hours=2))
    maintain(bus)
    assert one(bus, "select count(*) from mbus.dedup") == 0


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
