"""Rollback of a saga: who may start it, what is in somebody's hands, what cannot be undone."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock, wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import maintain, one, refused, rows
from tests.sql.tour import consume, left, saga_state, steps

TWO = [
    {"name": "first", "do": "do_first", "undo": "undo_first"},
    {"name": "second", "do": "do_second", "undo": "undo_second", "after": ["first"]},
]


@pytest.fixture
def pair(database: str, connect: Connect) -> Connection:
    """Give a connection in autocommit and the queues of a saga of two steps."""
    connection = connect(database, autocommit=True)
    for queue in ("do_first", "do_second", "undo_first", "undo_second"):
        connection.execute("select mbus.create_queue(%s, ncons => 2)", (queue,))
    return connection


def start(connection: Connection, **options: Any) -> int:
    named = "".join(f", {name} => %({name})s" for name in options)
    found = connection.execute(
        f"select mbus.create_saga('pair', %(steps)s{named})".encode(),
        {"steps": json.dumps(TWO), **options},
    ).fetchone()
    assert found is not None
    return found[0]


def look_again(connection: Connection) -> None:
    connection.execute("update mbus.saga set check_at = mbus.now() where check_at is not null")
    maintain(connection, None)


def lease(connection: Connection, queue: str) -> tuple[str, int]:
    return rows(connection, f"select iid, token from mbus.lease_{queue}_by_default()")[0]


def test_a_step_that_dies_rolls_the_saga_back(pair: Connection) -> None:
    saga = start(pair)
    consume(pair, "do_first")
    iid, token = lease(pair, "do_second")
    pair.execute("select mbus.nack(%s, %s, error => 'no seats', park => true)", (iid, token))
    assert steps(pair, saga) == {"first": "compensating", "second": "failed"}
    consume(pair, "undo_first")
    assert saga_state(pair, saga) == "compensated"
    assert one(pair, "select distinct error from mbus.saga_status") == "second: no seats"
    assert left(pair) == {}


def test_attempts_and_errors_of_a_step_are_told(pair: Connection) -> None:
    saga = start(pair)
    for _ in range(2):
        iid, token = lease(pair, "do_first")
        pair.execute("select mbus.nack(%s, %s, delay => '0', error => 'busy')", (iid, token))
    consume(pair, "do_first")
    told = "select attempts, step_error, done_at is not null from mbus.saga_status"
    assert rows(pair, f"{told} where saga_id = %s and step = 'first'", saga) == [(3, "busy", True)]


def test_a_handler_may_abort_and_is_not_compensated(pair: Connection) -> None:
    saga = start(pair)
    consume(pair, "do_first")
    with pair.transaction():
        headers = consume(pair, "do_second")
        assert headers is not None
        assert one(pair, "select mbus.abort_saga(%s, 'sold out')", headers["iid"]) is True
    assert steps(pair, saga) == {"first": "compensating", "second": "failed"}
    with refused(pair, "MB012"):
        pair.execute("select mbus.abort_saga(do_iid) from mbus.saga_status where step = 'first'")


def test_an_aborted_lease_is_not_done_by_its_ack(pair: Connection) -> None:
    saga = start(pair)
    iid, token = lease(pair, "do_first")
    pair.execute("select mbus.abort_saga(%s, 'sold out')", (iid,))
    assert saga_state(pair, saga) == "compensating"
    pair.execute("select mbus.ack(%s, %s)", (iid, token))
    assert saga_state(pair, saga) == "compensated"
    assert steps(pair, saga) == {"first": "failed", "second": "skipped"}
    assert left(pair) == {}


@pytest.mark.parametrize("outcome", ["commits", "rolls back"])
def test_a_cancel_does_not_wait_for_a_handler(
    pair: Connection, database: str, connect: Connect, outcome: str
) -> None:
    saga = start(pair)
    handler = connect(database)
    consume(handler, "do_first")
    pair.execute("set statement_timeout = '5s'")
    assert one(pair, "select mbus.cancel_saga(%s)", saga) is True
    assert steps(pair, saga) == {"first": "waiting", "second": "waiting"}
    if outcome == "commits":
        handler.commit()
        assert steps(pair, saga)["first"] == "compensating"
        consume(pair, "undo_first")
    else:
        handler.rollback()
        look_again(pair)
        assert steps(pair, saga)["first"] == "skipped"
    assert saga_state(pair, saga) == "compensated"
    assert left(pair) == {}


@pytest.mark.parametrize("outcome", ["acks", "gives back"])
def test_a_lease_that_outlives_the_cancel_is_settled(pair: Connection, outcome: str) -> None:
    saga = start(pair)
    iid, token = lease(pair, "do_first")
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    look_again(pair)
    assert steps(pair, saga)["first"] == "waiting"
    if outcome == "acks":
        pair.execute("select mbus.ack(%s, %s)", (iid, token))
        assert consume(pair, "undo_first") is not None
    else:
        pair.execute("select mbus.nack(%s, %s, delay => '0')", (iid, token))
        look_again(pair)
    assert saga_state(pair, saga) == "compensated"
    assert consume(pair, "undo_first") is None
    assert left(pair) == {}


def test_who_has_the_bung_in_hand_decides_before_the_saga_completes(
    pair: Connection, database: str, connect: Connect
) -> None:
    saga = start(pair)
    consume(pair, "do_first")
    bung = one(pair, "select distinct bung from mbus.saga_status")
    outsider = connect(database)
    outsider.execute("select mbus.take(%s)", (bung,))
    consume(pair, "do_second")
    assert saga_state(pair, saga) == "running"
    outsider.rollback()
    look_again(pair)
    assert saga_state(pair, saga) == "completed"
    assert left(pair) == {}


def test_only_one_of_two_rollbacks_wins(pair: Connection, database: str, connect: Connect) -> None:
    saga = start(pair)
    consume(pair, "do_first")
    outsider = connect(database)
    bung = one(pair, "select distinct bung from mbus.saga_status")
    outsider.execute("select mbus.take(%s)", (bung,))
    assert one(pair, "select mbus.cancel_saga(%s, 'from outside')", saga) is True
    outsider.commit()
    look_again(pair)
    assert consume(pair, "undo_first") is not None
    assert consume(pair, "undo_first") is None
    assert rows(pair, "select distinct state, error from mbus.saga_status") == [
        ("compensated", "from outside")
    ]
    assert left(pair) == {}


def test_who_comes_too_late_for_the_bung_is_not_compensated(
    pair: Connection, database: str, connect: Connect
) -> None:
    saga = start(pair)
    handler = connect(database)
    headers = consume(handler, "do_first")
    assert headers is not None
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    assert rows(handler, "select * from mbus.take(%s)", headers["bung"]) == []
    handler.commit()
    assert steps(pair, saga) == {"first": "failed", "second": "skipped"}
    assert saga_state(pair, saga) == "compensated"
    assert left(pair) == {}


def test_two_handlers_that_fail_at_once_are_both_not_compensated(
    pair: Connection, database: str, connect: Connect, in_thread: InThread
) -> None:
    plan = [{"name": "base", "do": "do_first", "undo": "undo_first"}] + [
        {"name": name, "do": "do_second", "undo": "undo_second", "after": ["base"]}
        for name in ("left", "right")
    ]
    saga = one(pair, "select mbus.create_saga('fork', %s)", json.dumps(plan))
    consume(pair, "do_first")
    one_hand, other_hand = connect(database), connect(database)
    headers = consume(one_hand, "do_second")
    assert headers is not None
    consume(other_hand, "do_second")
    one_hand.execute("select mbus.take(%s)", (headers["bung"],))
    late = in_thread(rows, other_hand, "select * from mbus.take(%s)", headers["bung"])
    wait_until_blocked(pair, other_hand.info.backend_pid)
    one_hand.commit()
    assert late.result(timeout=20) == []
    other_hand.commit()
    assert steps(pair, saga) == {"base": "compensating", "left": "failed", "right": "failed"}
    consume(pair, "undo_first")
    assert saga_state(pair, saga) == "compensated"
    assert left(pair) == {}


def test_a_deadline_rolls_back(pair: Connection, clock: DatabaseClock) -> None:
    saga = start(pair, deadline=clock.now() + timedelta(minutes=5))
    consume(pair, "do_first")
    maintain(pair, None)
    assert saga_state(pair, saga) == "running"
    clock.advance(timedelta(minutes=6))
    maintain(pair, None)
    assert steps(pair, saga) == {"first": "compensating", "second": "skipped"}
    consume(pair, "undo_first")
    assert rows(pair, "select distinct state, error from mbus.saga_status") == [
        ("compensated", "the deadline passed")
    ]


def test_after_the_pivot_there_is_no_way_back(pair: Connection, clock: DatabaseClock) -> None:
    saga = start(pair, pivot="first", deadline=clock.now() + timedelta(minutes=5))
    consume(pair, "do_first")
    bung = one(pair, "select distinct bung from mbus.saga_status")
    with refused(pair, "MB022"):
        pair.execute("select mbus.cancel_saga(%s)", (saga,))
    with refused(pair, "MB022"):
        pair.execute("select mbus.take(%s)", (bung,))
    clock.advance(timedelta(minutes=6))
    maintain(pair, None)
    assert rows(pair, "select distinct state, is_late from mbus.saga_status") == [("running", True)]
    iid, token = lease(pair, "do_second")
    pair.execute("select mbus.nack(%s, %s, error => 'broken', park => true)", (iid, token))
    assert saga_state(pair, saga) == "stuck"
    assert one(pair, "select mbus.retry_saga(%s)", saga) == 1
    assert saga_state(pair, saga) == "running"
    consume(pair, "do_second")
    assert saga_state(pair, saga) == "completed"
    assert left(pair) == {}


def test_a_compensation_that_dies_is_parked_and_retried(pair: Connection) -> None:
    saga = start(pair)
    consume(pair, "do_first")
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    iid, token = lease(pair, "undo_first")
    pair.execute("select mbus.nack(%s, %s, error => 'refused', park => true)", (iid, token))
    assert steps(pair, saga)["first"] == "parked"
    assert rows(pair, "select state, undo_error from mbus.saga_status where step = 'first'") == [
        ("stuck", "refused")
    ]
    assert one(pair, "select mbus.retry_saga(%s)", saga) == 1
    assert saga_state(pair, saga) == "compensating"
    consume(pair, "undo_first")
    assert saga_state(pair, saga) == "compensated"
    assert one(pair, "select mbus.retry_saga(%s)", saga) == 0
    assert left(pair) == {}


def test_closing_messages_go_to_whom_they_were_promised(pair: Connection) -> None:
    for queue in ("booked", "unbooked"):
        pair.execute("select mbus.create_queue(%s, ncons => 2)", (queue,))
    options = {"on_completed": "booked", "on_compensated": "unbooked"}
    start(pair, **options)
    consume(pair, "do_first")
    assert consume(pair, "booked") is None
    consume(pair, "do_second")
    assert consume(pair, "booked") is not None
    saga = start(pair, **options)
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    closing = consume(pair, "unbooked")
    assert closing is not None
    assert closing["saga"] == str(saga)
    assert left(pair) == {}


def test_finished_sagas_are_forgotten_after_a_while(pair: Connection, clock: DatabaseClock) -> None:
    saga = start(pair)
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    clock.advance(timedelta(days=31))
    pair.execute("select mbus._forget_sagas()")
    assert rows(pair, "select * from mbus.saga_status") == []
    with refused(pair, "MB023"):
        pair.execute("select mbus.cancel_saga(%s)", (saga,))


def test_a_completed_saga_cannot_be_cancelled(pair: Connection) -> None:
    saga = start(pair)
    consume(pair, "do_first")
    consume(pair, "do_second")
    with refused(pair, "MB024"):
        pair.execute("select mbus.cancel_saga(%s)", (saga,))


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("MB012", "'pair', '{}'"),
        ("MB012", "'pair', '[]'"),
        ("MB012", "'pair', null"),
        ("MB012", "'pair', '[1]'"),
        ("MB005", "'pair', '[{}]'"),
        ("MB005", "'No Name', '[]'"),
        ("MB001", """'pair', '[{"name": "a"}]'"""),
        ("MB001", """'pair', '[{"name": "a", "do": "nowhere"}]'"""),
        ("MB001", """'pair', '[{"name": "a", "do": "do_first", "undo": "nowhere"}]'"""),
        ("MB002", """'pair', '[{"name": "a", "do": "do_first", "consumer": "nobody"}]'"""),
        ("MB012", """'pair', '[{"name": "a", "do": "do_first", "then": "b"}]'"""),
        ("MB012", """'pair', '[{"name": "a", "do": "do_first", "after": ["b"]}]'"""),
        ("MB012", """'pair', '[{"name": "a", "do": "do_first", "after": ["a"]}]'"""),
        ("MB012", """'pair', '[{"name": "a", "do": "do_first", "after": "b"}]'"""),
        ("MB011", """'pair', '[{"name": "a", "do": "do_first", "data": 1}]'"""),
        ("MB012", """'pair', '[{"name": "a", "do": "do_first"}]', pivot => 'b'"""),
        ("MB012", """'pair', '[{"name": "a", "do": "do_first"}]', deadline => '2000-01-01'"""),
        ("MB001", """'pair', '[{"name": "a", "do": "do_first"}]', on_completed => 'nowhere'"""),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    connection: Connection, code: str, given: str
) -> None:
    connection.execute("select mbus.create_queue('do_first', ncons => 2)")
    with refused(connection, code):
        connection.execute(f"select mbus.create_saga({given})".encode())
    assert one(connection, "select count(*) from mbus.saga") == 0
    assert left(connection) == {}


def test_an_unknown_saga_is_refused(connection: Connection) -> None:
    for call in ("cancel_saga(99)", "retry_saga(99)", "cancel_saga(null)"):
        with refused(connection, "MB023"):
            connection.execute(f"select mbus.{call}".encode())
    connection.execute("select mbus.create_queue('q')")
    with refused(connection, "MB023"):
        connection.execute("select mbus.abort_saga(mbus.post('q', 'a=>1'))")


def test_who_does_what_another_aborted_is_compensated(
    pair: Connection, clock: DatabaseClock
) -> None:
    """The handler that aborted lost its lease, and the next one did the work."""
    saga = start(pair)
    iid, _ = lease(pair, "do_first")
    pair.execute("select mbus.abort_saga(%s, 'no')", (iid,))
    clock.advance(timedelta(minutes=1))
    iid, token = lease(pair, "do_first")
    pair.execute("select mbus.ack(%s, %s)", (iid, token))
    assert steps(pair, saga)["first"] == "compensating"
    consume(pair, "undo_first")
    look_again(pair)
    assert (saga_state(pair, saga), left(pair)) == ("compensated", {})


def test_a_step_whose_consumer_is_dropped_is_not_done(pair: Connection) -> None:
    for queue in ("do_first", "do_second", "undo_first", "undo_second"):
        pair.execute("select mbus.create_consumer(%s, 'worker')", (queue,))
    named = json.dumps([{**step, "consumer": "worker"} for step in TWO])
    saga = one(pair, "select mbus.create_saga('pair', %s)", named)
    pair.execute("select mbus.drop_consumer('do_first', 'worker')")
    look_again(pair)
    assert steps(pair, saga) == {"first": "failed", "second": "skipped"}
    assert saga_state(pair, saga) == "compensated"


def test_a_compensation_whose_consumer_is_dropped_is_settled_by_hand(pair: Connection) -> None:
    for queue in ("do_first", "undo_first"):
        pair.execute("select mbus.create_consumer(%s, 'worker')", (queue,))
    named = json.dumps([{**TWO[0], "consumer": "worker"}, TWO[1]])
    saga = one(pair, "select mbus.create_saga('pair', %s)", named)
    assert one(pair, "select count(*) from mbus.consumen_do_first_by_worker(1)") == 1
    pair.execute("select mbus.drop_consumer('undo_first', 'worker')")
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    look_again(pair)
    assert steps(pair, saga)["first"] == "parked"
    assert one(pair, "select mbus.retry_saga(%s)", saga) == 0
    assert saga_state(pair, saga) == "stuck"
    assert one(pair, "select mbus.settle_saga_step(%s, 'second')", saga) is False
    assert one(pair, "select mbus.settle_saga_step(%s, 'first')", saga) is True
    look_again(pair)
    assert saga_state(pair, saga) == "compensated"


def test_a_failed_step_past_the_pivot_is_settled_by_hand(pair: Connection) -> None:
    saga = start(pair, pivot="first")
    consume(pair, "do_first")
    iid, token = lease(pair, "do_second")
    pair.execute("select mbus.nack(%s, %s, park => true)", (iid, token))
    assert saga_state(pair, saga) == "stuck"
    assert one(pair, "select mbus.settle_saga_step(%s, 'second')", saga) is True
    assert (saga_state(pair, saga), left(pair)) == ("completed", {})
    with refused(pair, "MB023"):
        pair.execute("select mbus.settle_saga_step(0, 'second')")


def test_what_a_saga_counts_on_is_not_purged(pair: Connection) -> None:
    saga = start(pair)
    with refused(pair, "MB012"):
        pair.execute("select mbus.purge('do_first')")
    consume(pair, "do_first")
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    with refused(pair, "MB012"):
        pair.execute("select mbus.purge('undo_first')")
    consume(pair, "undo_first")
    look_again(pair)
    assert saga_state(pair, saga) == "compensated"


def test_the_service_queue_is_the_sagas_own(pair: Connection) -> None:
    saga = start(pair)
    gate, bung = rows(
        pair,
        "select mbus._iid('sagas', gate_number), mbus._iid('sagas', bung_number) from mbus.saga",
    )[0]
    for iid in (gate, bung):
        with refused(pair, "MB010"):
            pair.execute("select mbus.post('sagas', 'a=>1'::hstore, iid => %s)", (iid,))
    with refused(pair, "MB012"):
        pair.execute("select mbus.drop_queue('sagas')")
    assert steps(pair, saga) == {"first": "ready", "second": "waiting"}
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    look_again(pair)
    assert saga_state(pair, saga) == "compensated"
    pair.execute("select mbus.drop_queue('sagas')")


def test_a_trigger_copies_a_compensation_when_it_is_released(pair: Connection) -> None:
    pair.execute("select mbus.create_queue('copies')")
    pair.execute("select mbus.create_trigger('undo_first', 'copies')")
    start(pair)
    consume(pair, "do_first")
    consume(pair, "do_second")
    assert one(pair, "select mbus.peek_copies()") is False
    saga = start(pair)
    consume(pair, "do_first")
    pair.execute("select mbus.cancel_saga(%s)", (saga,))
    assert one(pair, "select count(*) from mbus.consumen_copies_by_default(9)") == 1
