"""High before normal before low; in order within each."""

from __future__ import annotations

import pytest
from psycopg import Connection

from postroad.testing import wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import lease, maintain, nack, one, post, take

pytestmark = pytest.mark.both_versions

MIXED = [("low", 1), ("normal", 2), ("high", 3), (None, 4), ("low", 5), ("high", 6)]


def post_mixed(connection: Connection) -> None:
    for priority, number in MIXED:
        post(connection, number, priority and f"priority=>{priority}")


def test_higher_classes_come_first_and_each_in_order(bus: Connection) -> None:
    post_mixed(bus)
    assert take(bus) == ["3", "6", "2", "4", "1", "5"]


def test_one_by_one_the_order_is_the_same(bus: Connection) -> None:
    post_mixed(bus)
    got = []
    while found := take(bus, 1):
        got += found
    assert got == ["3", "6", "2", "4", "1", "5"]


def test_every_consumer_has_the_same_order(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    post_mixed(bus)
    assert take(bus, whose="q_by_second") == take(bus) == ["3", "6", "2", "4", "1", "5"]


def test_leases_respect_priorities(bus: Connection) -> None:
    post_mixed(bus)
    assert [number for number, _, _, _ in lease(bus, 9)] == ["3", "6", "2", "4", "1", "5"]


def test_a_message_keeps_its_class_when_it_is_given_back_or_delayed(bus: Connection) -> None:
    post(bus, 1, "priority=>high")
    ((_, iid, token, _),) = lease(bus)
    nack(bus, iid, token, delay="0")
    post(bus, 2, "priority=>high", delayed_until="2100-01-01")
    post(bus, 3)
    bus.execute("update mbus.delayed set due_at = '2020-01-01'")
    maintain(bus)
    assert take(bus) == ["1", "2", "3"]


def test_the_header_is_delivered(bus: Connection) -> None:
    post(bus, 1, "priority=>low")
    assert one(bus, "select headers->'priority' from mbus.consume('q')") == "low"


def test_two_sessions_may_bring_the_same_class_first(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    first, second, observer = connect(live), connect(live), connect(live)
    post(first, 1, "priority=>high")
    posting = in_thread(post, second, 2, "priority=>high")
    wait_until_blocked(observer, second.info.backend_pid)
    first.commit()
    posting.result()
    second.commit()
    assert take(observer) == ["1", "2"]


def test_a_class_whose_first_post_is_rolled_back_is_made_by_the_next(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    first, second, observer = connect(live), connect(live), connect(live)
    post(first, 1, "priority=>high")
    posting = in_thread(post, second, 2, "priority=>high")
    wait_until_blocked(observer, second.info.backend_pid)
    first.rollback()
    posting.result()
    second.commit()
    assert take(observer) == ["2"]


def test_consumers_go_on_while_a_class_is_being_added(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live, autocommit=True)
    post(first, 1)
    first.commit()
    second.execute("set statement_timeout = '5s'")
    post(first, 2, "priority=>high")
    assert take(second) == ["1"]
    post(second, 3)
    assert take(second) == ["3"]
    first.commit()
    assert take(second) == ["2"]


def test_a_transaction_older_than_the_lane_can_use_it(live: str, connect: Connect) -> None:
    older, other = connect(live), connect(live, autocommit=True)
    post(older, 1, "kind=>a")
    post(other, 2, "priority=>high")
    iid = post(older, 3, "priority=>high")
    post(older, 4, "priority=>high")
    older.commit()
    assert take(other) == ["2", "3", "4", "1"]
    assert iid is not None
