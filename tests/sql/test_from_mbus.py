"""What the page for those who come from mbus promises."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import column, lease, nack, one, post, refused, rows, take


def test_consume_accepts_the_name_of_a_temporary_consumer(bus: Connection) -> None:
    name = one(bus, "select mbus.create_temporary_consumer('q')")
    post(bus, 1)
    assert column(bus, "select data->'n' from mbus.consume('q', %s)", name) == ["1"]
    assert column(bus, "select data->'n' from mbus.consume('q', %s)", name) == []
    bus.execute("select mbus.create_queue('other')")
    with refused(bus, "MB002"):
        bus.execute("select mbus.consume('other', %s)", (name,))
    with refused(bus, "MB002"):
        bus.execute("select mbus.consume('q', 'temp.none')")


def test_take_from_has_the_parameter_of_the_document(bus: Connection) -> None:
    iid = post(bus, 1)
    query = "select data->'n' from mbus.take_from_q_by_default(msgid => %s)"
    assert column(bus, query, iid) == ["1"]


@pytest.mark.parametrize("iid", ["q.999@{node}", "q.1@elsewhere", "other.1@{node}", "nonsense", ""])
def test_peek_of_an_unknown_iid_is_false(bus: Connection, iid: str) -> None:
    name = iid.format(node=one(bus, "select name from mbus.node"))
    assert one(bus, "select mbus.peek_q(%s)", name) is False


@pytest.mark.parametrize(("ncons", "slots"), [(1, 2), (257, 256), (10_000, 256)])
def test_any_positive_ncons_makes_a_queue(bus: Connection, ncons: int, slots: int) -> None:
    for _ in range(2):
        bus.execute("select mbus.create_queue('w', %s)", (ncons,))
    assert one(bus, "select ncons from mbus.queues where queue = 'w'") == slots
    post(bus, 1, queue="w")
    assert take(bus, whose="w_by_default") == ["1"]


def test_a_delivered_message_shows_until_when_it_was_delayed(live: str, connect: Connect) -> None:
    connection = connect(live, autocommit=True)
    connection.execute("select mbus.create_view('q')")
    post(connection, 1, delayed_until="2020-01-01 00:00+00")
    query = "select delayed_until = '2020-01-01 00:00+00' from {}"
    assert column(connection, query.format("public.q_q")) == [True]
    ((_, iid, token, _),) = lease(connection)
    assert nack(connection, iid, token, delay="1 minute") == "delayed"
    ((due,),) = rows(connection, "select due_at from mbus.delayed")
    connection.execute("update mbus.delayed set due_at = mbus.now()")
    connection.execute("select mbus.maintain('q')")
    assert column(connection, "select delayed_until from mbus.consume('q')") == [due]
