"""Durable subscribers: each gets its own copy, and none hides a message from another."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import Connection

from postroad.testing import wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import lease, maintain, nack, one, post, post_many, refused, rows, take

SECOND = "q_by_second"


def add_second(connection: Connection) -> None:
    connection.execute("select mbus.create_consumer('q', 'second')")


def test_each_consumer_gets_its_own_copy(bus: Connection) -> None:
    add_second(bus)
    post_many(bus, 3)
    assert take(bus) == ["1", "2", "3"]
    assert take(bus, whose=SECOND) == ["1", "2", "3"]
    assert take(bus) == take(bus, whose=SECOND) == []


def test_both_copies_bear_the_same_iid(bus: Connection) -> None:
    add_second(bus)
    iid = post(bus, 1)
    assert one(bus, "select iid from mbus.consume('q')") == iid
    assert one(bus, "select iid from mbus.consume('q', 'second')") == iid


def test_workers_of_one_consumer_share(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    add_second(first)
    post_many(first, 4)
    first.commit()
    assert take(first, 2, SECOND) == ["1", "2"]
    assert take(second, 100, SECOND) == ["3", "4"]


def test_an_open_transaction_of_one_consumer_hides_nothing_from_another(
    live: str, connect: Connect
) -> None:
    first, second = connect(live), connect(live)
    add_second(first)
    post_many(first, 3)
    first.commit()
    assert take(first) == ["1", "2", "3"]
    assert take(second, whose=SECOND) == ["1", "2", "3"]
    second.commit()
    first.rollback()
    assert take(first) == ["1", "2", "3"]


def test_the_payload_is_stored_once(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'c' || n) from generate_series(1, 3) n")
    post(bus, "x" * 1000)
    sizes = rows(
        bus,
        "select c.relname, pg_relation_size(c.oid) from pg_class c where c.relkind = 'r'"
        " and c.relname like 'ql$q$%' and pg_relation_size(c.oid) > 0",
    )
    assert len(sizes) == 1
    columns = rows(
        bus,
        "select distinct attname from pg_attribute where attnum > 0"
        " and attrelid in (select oid from pg_class where relkind = 'r' and relname like 'qc$q$%')",
    )
    assert sorted(columns) == [("id",), ("leased_until",), ("origin",), ("token",)]


def test_the_backlog_stays_with_the_first_consumer(bus: Connection) -> None:
    iid = one(bus, "select mbus.get_iid('q')")
    post_many(bus, 3)
    post(bus, "reserved", iid=iid)
    post(bus, "urgent", "priority=>high")
    add_second(bus)
    post(bus, "new")
    assert take(bus, whose=SECOND) == ["new"]
    assert take(bus) == ["urgent", "1", "2", "3", "reserved", "new"]


def test_a_new_consumer_does_not_get_what_was_delayed_before_it_came(bus: Connection) -> None:
    post(bus, "old", delayed_until="2100-01-01")
    add_second(bus)
    post(bus, "young", delayed_until="2100-01-02")
    bus.execute("update mbus.delayed set due_at = '2020-01-01'")
    maintain(bus)
    assert sorted(take(bus)) == ["old", "young"]
    assert take(bus, whose=SECOND) == ["young"]


def test_a_lease_from_before_goes_back_to_its_own_consumer(bus: Connection) -> None:
    post(bus, 1)
    ((_, iid, token, _),) = lease(bus)
    add_second(bus)
    assert nack(bus, iid, token, delay="0") == "ready"
    assert take(bus, whose=SECOND) == []
    assert take(bus) == ["1"]


def test_what_one_consumer_gives_back_is_not_seen_by_another(bus: Connection) -> None:
    add_second(bus)
    post(bus, 1)
    ((_, iid, token, _),) = lease(bus)
    nack(bus, iid, token, delay="0")
    assert take(bus, whose=SECOND) == ["1"]
    assert take(bus, whose=SECOND) == []
    assert take(bus) == ["1"]


def test_a_dropped_consumer_takes_its_copies_along(bus: Connection) -> None:
    add_second(bus)
    post_many(bus, 2)
    post(bus, 3, delayed_until="2100-01-01")
    lease(bus, whose=SECOND)
    bus.execute("select mbus.drop_consumer('q', 'second')")
    with refused(bus, "MB002"):
        bus.execute("select mbus.consume('q', 'second')")
    assert take(bus) == ["1", "2"]
    post(bus, 4)
    assert take(bus) == ["4"]
    assert one(bus, "select sum(leased) from mbus.status") == 0


def test_the_default_consumer_may_be_dropped_when_another_stays(bus: Connection) -> None:
    add_second(bus)
    post(bus, 1)
    bus.execute("select mbus.drop_consumer('q', 'default')")
    post(bus, 2)
    assert take(bus, whose=SECOND) == ["1", "2"]
    with refused(bus, "MB016"):
        bus.execute("select mbus.drop_consumer('q', 'second')")


def test_a_consumer_of_the_same_name_starts_anew(bus: Connection) -> None:
    add_second(bus)
    post(bus, 1)
    bus.execute("select mbus.drop_consumer('q', 'second')")
    add_second(bus)
    post(bus, 2)
    assert take(bus, whose=SECOND) == ["2"]


def test_consumers_of_different_queues_may_have_the_same_name(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('other')")
    add_second(bus)
    bus.execute("select mbus.create_consumer('other', 'second')")
    post(bus, 1)
    assert take(bus, whose="other_by_second") == []
    assert take(bus, whose=SECOND) == ["1"]


def test_creating_a_consumer_waits_for_open_posts_and_keeps_them(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    poster, owner, observer = connect(live), connect(live), connect(live)
    post(poster, 1)
    creating = in_thread(add_second, owner)
    wait_until_blocked(observer, owner.info.backend_pid)
    poster.commit()
    creating.result()
    owner.commit()
    assert take(observer) == ["1"]
    assert take(observer, whose=SECOND) == []


def test_creating_a_consumer_gives_up_when_a_post_stays_open(live: str, connect: Connect) -> None:
    poster, owner = connect(live), connect(live)
    post(poster, 1)
    # The function's own limit is ten seconds; the test needs only the refusal.
    function = "alter function mbus.create_consumer(text, text, text, boolean, text, text)"
    owner.execute(f"{function} set lock_timeout = '50ms'".encode())
    with refused(owner, "MB017"):
        add_second(owner)
    owner.rollback()
    poster.commit()
    add_second(owner)
    post(owner, 2)
    assert take(owner) == ["1", "2"]
    assert take(owner, whose=SECOND) == ["2"]


def test_a_deadlock_while_a_consumer_is_created_is_reported_as_busy(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    poster, owner, observer = connect(live), connect(live), connect(live)
    post(poster, 1)
    poster.execute("set local deadlock_timeout = '1min'")
    owner.execute("set local deadlock_timeout = '500ms'")
    creating = in_thread(add_second, owner)
    wait_until_blocked(observer, owner.info.backend_pid)
    # The first message of a priority changes the queue, which is locked by the other session.
    posting = in_thread(post, poster, 2, "priority=>high")
    with pytest.raises(psycopg.Error) as caught:
        creating.result()
    assert caught.value.sqlstate == "MB017"
    owner.rollback()
    posting.result()
