"""Reaching one message by its iid, wherever it waits."""

from __future__ import annotations

import pytest
from psycopg import Connection

from postroad.testing import wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, lease, nack, one, post, post_many, refused, rows, take


def taken(connection: Connection, iid: str, function: str = "take") -> list[str]:
    return column(connection, f"select data->'n' from mbus.{function}(%s)", iid)


def test_peek_tells_whether_there_is_any_message(bus: Connection) -> None:
    assert not one(bus, "select mbus.peek_q()")
    post(bus, 1)
    assert one(bus, "select mbus.peek_q()")
    take(bus)
    assert not one(bus, "select mbus.peek_q()")


def test_peek_tells_whether_a_message_is_there_and_takes_nothing(bus: Connection) -> None:
    iids = post_many(bus, 3)
    assert one(bus, "select mbus.peek_q(%s)", iids[1])
    assert take(bus) == ["1", "2", "3"]
    assert not one(bus, "select mbus.peek_q(%s)", iids[1])


def test_peek_finds_delayed_and_leased_messages(bus: Connection) -> None:
    delayed = post(bus, 1, delayed_until="2100-01-01")
    assert one(bus, "select mbus.peek_q(%s)", delayed)
    leased = post(bus, 2)
    lease(bus)
    assert one(bus, "select mbus.peek_q(%s)", leased)


@pytest.mark.parametrize("function", ["take", "take_q", "take_from_q_by_default"])
def test_a_ready_message_is_taken_out_of_the_middle(bus: Connection, function: str) -> None:
    iids = post_many(bus, 3)
    assert taken(bus, iids[1], function) == ["2"]
    assert taken(bus, iids[1], function) == []
    assert take(bus) == ["1", "3"]


@pytest.mark.parametrize("function", ["take", "take_q", "take_from_q_by_default"])
def test_a_delayed_message_is_taken(bus: Connection, function: str) -> None:
    iid = post(bus, 1, delayed_until="2100-01-01")
    assert taken(bus, iid, function) == ["1"]
    assert not one(bus, "select mbus.peek_q(%s)", iid)


@pytest.mark.parametrize("function", ["take", "take_q", "take_from_q_by_default"])
def test_a_leased_message_is_taken_and_its_lease_is_lost(bus: Connection, function: str) -> None:
    post(bus, 1)
    ((_, iid, token, _),) = lease(bus)
    assert taken(bus, iid, function) == ["1"]
    with refused(bus, "MB015"):
        bus.execute("select mbus.ack(%s, %s)", (iid, token))


@pytest.mark.parametrize("function", ["take", "take_q", "take_from_q_by_default"])
def test_a_dead_message_is_taken(bus: Connection, function: str) -> None:
    post(bus, 1)
    ((_, iid, token, _),) = lease(bus)
    assert nack(bus, iid, token, park=True) == "dmq"
    assert taken(bus, iid, function) == ["1"]
    assert rows(bus, "select * from mbus.dead") == []


def test_take_carries_what_consume_would(bus: Connection) -> None:
    iid = post(bus, 1, "trace=>x", expires="2100-01-01")
    bus.execute("savepoint before")
    consumed = rows(bus, "select * from mbus.consume('q')")
    bus.execute("rollback to before")
    assert rows(bus, "select * from mbus.take(%s)", iid) == consumed


def test_take_removes_the_copies_of_all_consumers_and_gives_one(bus: Connection) -> None:
    for name in ("second", "third"):
        bus.execute("select mbus.create_consumer('q', %s)", (name,))
    iid = post(bus, 1)
    lease(bus, whose="q_by_third")
    assert taken(bus, iid) == ["1"]
    assert take(bus) == take(bus, whose="q_by_second") == []
    assert one(bus, "select sum(leased) from mbus.status") == 0


@pytest.mark.parametrize("delayed_until", [None, "2100-01-01"])
def test_take_from_takes_one_consumers_copy(bus: Connection, delayed_until: str | None) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    iid = post(bus, 1, delayed_until=delayed_until)
    assert taken(bus, iid, "take_from_q_by_second") == ["1"]
    assert taken(bus, iid, "take_from_q_by_second") == []
    assert taken(bus, iid, "take_from_q_by_default") == ["1"]
    assert not one(bus, "select mbus.peek_q(%s)", iid)


def test_a_message_that_was_given_back_is_found_by_its_iid(bus: Connection) -> None:
    post_many(bus, 2)
    ((_, iid, token, _),) = lease(bus)
    nack(bus, iid, token, delay="0")
    assert one(bus, "select mbus.peek_q(%s)", iid)
    assert taken(bus, iid) == ["1"]
    assert take(bus) == ["2"]


def test_other_payloads_have_their_own_take(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q', payload => 'jsonb')")
    iid = one(connection, "select mbus.post('q', '{\"a\": 1}'::jsonb)")
    with refused(connection, "MB019"):
        connection.execute("select mbus.take(%s)", (iid,))
    assert column(connection, "select data->>'a' from mbus.take_q(%s)", iid) == ["1"]


@pytest.mark.parametrize("function", ["take", "take_from_q_by_default"])
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_take_waits_for_the_holder(
    live: str, connect: Connect, in_thread: InThread, function: str, outcome: str
) -> None:
    holder, taker, observer = connect(live), connect(live), connect(live)
    iid = post(holder, 1)
    holder.commit()
    assert take(holder) == ["1"]
    taking = in_thread(taken, taker, iid, function)
    wait_until_blocked(observer, taker.info.backend_pid)
    getattr(holder, outcome)()
    assert taking.result() == ([] if outcome == "commit" else ["1"])


def test_take_follows_a_message_that_its_holder_leases(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    holder, taker, observer = connect(live), connect(live), connect(live)
    iid = post(holder, 1)
    holder.commit()
    lease(holder)
    taking = in_thread(taken, taker, iid)
    wait_until_blocked(observer, taker.info.backend_pid)
    holder.commit()
    assert taking.result() == ["1"]


def test_take_follows_a_message_that_its_holder_gives_back(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    holder, taker, observer = connect(live), connect(live), connect(live)
    post(holder, 1)
    ((_, iid, token, _),) = lease(holder)
    holder.commit()
    nack(holder, iid, token, delay="0")
    taking = in_thread(taken, taker, iid)
    wait_until_blocked(observer, taker.info.backend_pid)
    holder.commit()
    assert taking.result() == ["1"]


def test_take_leaves_no_copy_behind_that_moves_while_it_waits(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    holder, taker, observer = connect(live), connect(live), connect(live)
    holder.execute("select mbus.create_consumer('q', 'second')")
    post(holder, 1)
    ((_, iid, token, _),) = lease(holder, whose="q_by_second")
    holder.commit()
    nack(holder, iid, token, delay="0")
    taking = in_thread(taken, taker, iid)
    wait_until_blocked(observer, taker.info.backend_pid)
    holder.commit()
    assert taking.result() == ["1"]
    taker.commit()
    assert take(holder) == take(holder, whose="q_by_second") == []
