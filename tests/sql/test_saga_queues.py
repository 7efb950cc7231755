"""Sagas over all kinds of queues, and over queues that change under them."""

from __future__ import annotations

import json

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import column, one, rows
from tests.sql.tour import consume, left, saga_state, steps


@pytest.fixture
def bus(database: str, connect: Connect) -> Connection:
    return connect(database, autocommit=True)


def start(bus: Connection, *plan: dict[str, object]) -> int:
    return one(bus, "select mbus.create_saga('trip', %s)", json.dumps(plan))


@pytest.mark.parametrize(
    ("payload", "given", "got"),
    [
        ("hstore", {"a": 1, "b": None}, {"a": "1", "b": None}),
        ("jsonb", {"a": [1, None]}, {"a": [1, None]}),
        ("jsonb", None, {}),
        ("text", "hello", "hello"),
        ("text", {"a": 1}, '{"a": 1}'),
        ("bytea", "\\x0102", b"\1\2"),
    ],
)
def test_data_comes_as_the_queue_carries_it(
    bus: Connection, payload: str, given: object, got: object
) -> None:
    bus.execute("select mbus.create_queue('rooms', ncons => 2, payload => %s::regtype)", (payload,))
    plan = {"name": "room", "do": "rooms", **({} if given is None else {"data": given})}
    saga = start(bus, plan)
    shown = "hstore_to_json(data)" if payload == "hstore" else "data"
    assert column(bus, f"select {shown} from mbus.consume_rooms_by_default()") == [got]
    assert saga_state(bus, saga) == "completed"
    assert left(bus) == {}


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_step_is_done_by_the_consumer_it_names(bus: Connection, is_cancelled: bool) -> None:
    for queue in ("rooms", "cancel_rooms"):
        bus.execute("select mbus.create_queue(%s, ncons => 2)", (queue,))
        bus.execute("select mbus.create_consumer(%s, 'booker')", (queue,))
    saga = start(
        bus,
        {"name": "room", "do": "rooms", "undo": "cancel_rooms", "consumer": "booker"},
        {"name": "more", "do": "rooms", "after": ["room"], "consumer": "booker"},
    )
    if is_cancelled:
        bus.execute("select mbus.cancel_saga(%s)", (saga,))
    else:
        bus.execute("select mbus.consume('rooms', 'booker')")
        assert steps(bus, saga)["room"] == "done"
        # The other consumer's copy decides nothing but the order.
        assert rows(bus, "select * from mbus.consume('rooms', 'booker')") == []
        bus.execute("select mbus.consume('rooms')")
        bus.execute("select mbus.consume('rooms', 'booker')")
        assert saga_state(bus, saga) == "completed"
        bus.execute("select mbus.consume('rooms')")
    assert saga_state(bus, saga) == ("compensated" if is_cancelled else "completed")
    assert left(bus) == {}


def test_a_dropped_queue_rolls_back(bus: Connection) -> None:
    for queue in ("rooms", "flights", "cancel_rooms"):
        bus.execute("select mbus.create_queue(%s, ncons => 2)", (queue,))
    saga = start(
        bus,
        {"name": "room", "do": "rooms", "undo": "cancel_rooms"},
        {"name": "flight", "do": "flights", "after": ["room"]},
    )
    consume(bus, "rooms")
    bus.execute("select mbus.drop_queue('flights')")
    assert steps(bus, saga) == {"room": "compensating", "flight": "failed"}
    consume(bus, "cancel_rooms")
    assert saga_state(bus, saga) == "compensated"
    assert left(bus) == {}


def test_a_lost_compensation_is_told_and_not_forgotten(bus: Connection) -> None:
    for queue in ("rooms", "flights", "cancel_rooms"):
        bus.execute("select mbus.create_queue(%s, ncons => 2)", (queue,))
    saga = start(
        bus,
        {"name": "room", "do": "rooms", "undo": "cancel_rooms"},
        {"name": "flight", "do": "flights", "after": ["room"]},
    )
    consume(bus, "rooms")
    bus.execute("select mbus.drop_queue('cancel_rooms')")
    assert saga_state(bus, saga) == "running"
    bus.execute("select mbus.cancel_saga(%s)", (saga,))
    assert steps(bus, saga) == {"room": "parked", "flight": "skipped"}
    assert rows(bus, "select state, undo_error from mbus.saga_status where step = 'room'") == [
        ("stuck", "its message is lost")
    ]


def test_a_step_that_cannot_be_undone_stays_done(bus: Connection) -> None:
    for queue in ("rooms", "flights"):
        bus.execute("select mbus.create_queue(%s, ncons => 2)", (queue,))
    saga = start(
        bus,
        {"name": "room", "do": "rooms"},
        {"name": "flight", "do": "flights", "after": ["room"]},
    )
    consume(bus, "rooms")
    bus.execute("select mbus.cancel_saga(%s)", (saga,))
    assert saga_state(bus, saga) == "compensated"
    assert steps(bus, saga) == {"room": "done", "flight": "skipped"}
    assert left(bus) == {}


def test_many_sagas_share_a_transaction(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('rooms', ncons => 2)")
    plan = json.dumps([{"name": "room", "do": "rooms"}])
    bus.execute("select mbus.create_saga('trip', %s) from generate_series(1, 300)", (plan,))
    with bus.transaction():
        taken = column(bus, "select iid from mbus.consumen_rooms_by_default(300)")
        bus.execute("select mbus.abort_saga(%s, 'no')", (taken[0],))
    assert rows(bus, "select state, count(*) from mbus.saga_status group by 1 order by 1") == [
        ("compensated", 1),
        ("completed", 299),
    ]
    assert left(bus) == {}
