"""Temporary consumers: a session's own copies of what is posted to a queue."""

from __future__ import annotations

import pytest
from psycopg import Connection

from postroad.testing import wait_until
from tests.fixtures.postgres import Connect
from tests.sql.calls import column, one, post, post_many, refused, rows, take

pytestmark = pytest.mark.both_versions


def subscribe(connection: Connection, selector: str | None = None, queue: str = "q") -> str:
    return one(connection, "select mbus.create_temporary_consumer(%s, %s)", queue, selector)


def receive(connection: Connection, name: str) -> list[str]:
    return column(connection, "select data->'n' from mbus.consume_temporary(%s, 100)", name)


def test_copies_come_from_now_on(bus: Connection) -> None:
    post(bus, "before")
    name = subscribe(bus)
    post(bus, "one")
    post_many(bus, 2)
    assert receive(bus, name) == ["one", "1", "2"]
    assert take(bus) == ["before", "one", "1", "2"]


def test_the_selector_really_works(bus: Connection) -> None:
    large = subscribe(bus, "(t.data->'n')::integer > 1 -- a remark")
    marked = subscribe(bus, "t.headers->'trace' = 'x' and t.iid like 'q.%' and t.id > 0")
    post(bus, 1, "trace=>x")
    post(bus, 2)
    post_many(bus, 2)
    assert receive(bus, large) == ["2", "2"]
    assert receive(bus, marked) == ["1"]


def test_a_selector_that_raises_is_seen_by_its_subscriber(bus: Connection) -> None:
    name = subscribe(bus, "(t.data->'n')::integer > 1")
    post(bus, "x")
    ((n, error),) = rows(
        bus, "select data->'n', headers->'selector_error' from mbus.consume(%s)", name
    )
    assert n == "x"
    assert error.startswith("invalid input syntax for type integer")
    assert take(bus) == ["x"]


def test_the_copy_names_its_message_and_keeps_delay_and_expiry(bus: Connection) -> None:
    name = subscribe(bus)
    iid = one(
        bus,
        "select mbus.post_q('n=>1', 'a=>b', 'p=>1', mbus.now() - interval '1 s', '2100-01-01')",
    )
    post(bus, 2, delayed_until="2100-01-01")
    ((origin, header, properties, delayed, expires),) = rows(
        bus,
        "select headers->'origin_iid', headers->'a', properties::text, delayed_until is not null,"
        " expires = '2100-01-01' from mbus.consume_temporary(%s, 9)",
        name,
    )
    assert (origin, header, properties, delayed, expires) == (iid, "b", '"p"=>"1"', True, True)


def test_a_trigger_and_a_temporary_consumer_go_together(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('r')")
    bus.execute("select mbus.create_trigger('q', 'r')")
    first, second = subscribe(bus), subscribe(bus, queue="r")
    post(bus, 1)
    assert receive(bus, first) == receive(bus, second) == ["1"]
    bus.execute("select mbus.drop_trigger('q', 'r')")
    post(bus, 2)
    assert receive(bus, first) == ["2"]
    assert receive(bus, second) == []


@pytest.mark.parametrize("payload", ["jsonb", "text", "bytea"])
def test_other_payloads(connection: Connection, payload: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    text = {"jsonb": '{"a": 1}', "text": "abc", "bytea": "\\x61"}[payload]
    name = subscribe(connection, f"t.data = '{text}'")
    connection.execute("select mbus.post('q', %s::text)", (text,))
    got = column(connection, f"select data::text from mbus.consume_temporary_{payload}(%s)", name)
    assert got == [text]


def test_bad_input_is_refused(bus: Connection) -> None:
    for queue, selector, code in [
        ("none", None, "MB001"),
        (None, None, "MB001"),
        ("q", "t.nothing", "MB008"),
        ("q", "", "MB008"),
        ("q", "true); select (true", "MB008"),
    ]:
        with refused(bus, code):
            bus.execute("select mbus.create_temporary_consumer(%s, %s)", (queue, selector))
    assert rows(bus, "select * from mbus.followers") == []
    assert rows(bus, "select * from mbus.temporary_queue") == []


def test_it_is_gone_with_its_session(live: str, connect: Connect) -> None:
    owner, other = (connect(live, autocommit=True) for _ in range(2))
    name = subscribe(owner)
    assert rows(other, "select queue, kind, destination, pid from mbus.followers") == [
        ("q", "temporary", name, owner.info.backend_pid)
    ]
    post(other, 1)
    assert receive(owner, name) == ["1"]
    owner.close()
    wait_until(lambda: one(other, "select mbus.clear_tempq()") == 1, what="the session's end")
    assert rows(other, "select * from mbus.followers") == []
    post(other, 2)
    assert one(other, "select count(*) from mbus.tempq_0") == 0


def test_they_come_and_go_without_a_trace_in_the_catalogue(live: str, connect: Connect) -> None:
    owner = connect(live, autocommit=True)
    subscribe(owner)
    count = "select (select count(*) from pg_class), max(xmin::text::bigint) from pg_proc"
    before = rows(owner, count)
    owner.execute("select mbus.create_temporary_consumer('q') from generate_series(1, 50)")
    assert rows(owner, count) == before
