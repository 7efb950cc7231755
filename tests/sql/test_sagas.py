"""Sagas: all steps done, or every done step compensated."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import column, maintain, one, refused, rows
from tests.sql.plans import touched, used_plans
from tests.sql.tour import (
    FORWARD,
    UNDO,
    consume,
    consume_step,
    create_tour_queues,
    left,
    ready,
    saga_state,
    start_tour,
    steps,
)


@pytest.fixture
def tour(database: str, connect: Connect) -> Connection:
    """Give a connection in autocommit, so that each call is a transaction."""
    connection = connect(database, autocommit=True)
    create_tour_queues(connection)
    return connection


def test_a_saga_completes_and_leaves_nothing(tour: Connection) -> None:
    saga = start_tour(tour)
    assert ready(tour) == ["rooms_reservations"]
    assert steps(tour, saga)["rooms"] == "ready"
    for step in FORWARD:
        assert saga_state(tour, saga) == "running"
        headers = consume_step(tour, step)
        assert headers["saga"] == str(saga)
        assert headers["step"] == step
        assert headers["idempotency_key"] == headers["iid"]
        assert headers["bung"].startswith("sagas.")
    assert set(steps(tour, saga).values()) == {"done"}
    assert saga_state(tour, saga) == "completed"
    assert left(tour) == {}


def test_the_picture_of_the_seed_is_there(tour: Connection) -> None:
    start_tour(tour)
    # Four successors, five compensations, the bung, two closing messages.
    assert left(tour)["blocked"] == 4 + 5 + 1 + 2
    after = dict(
        rows(tour, "select q.name, b.headers->'consume_after' from mbus.blocked b"
                   " join mbus.queue q on q.id = b.queue_id where q.name like 'cancel%'")
    )  # fmt: skip
    bung = one(tour, "select distinct bung from mbus.saga_status")
    assert after == dict.fromkeys(UNDO.values(), f"{{{bung}}}")


def test_taking_the_bung_compensates_what_was_done_in_reverse(tour: Connection) -> None:
    saga = start_tour(tour)
    for step in ("rooms", "ticket_to", "transfer_to"):
        consume_step(tour, step)
    with tour.transaction():
        headers = consume_step(tour, "ticket_from")
        assert rows(tour, "select data->'saga' from mbus.take(%s)", headers["bung"]) == [
            (str(saga),)
        ]
    assert steps(tour, saga) == {
        "rooms": "done",
        "ticket_to": "done",
        "ticket_from": "failed",
        "transfer_to": "compensating",
        "transfer_from": "skipped",
    }
    order = []
    while queues := ready(tour):
        (queue,) = queues
        headers = consume(tour, queue)
        assert headers is not None
        order.append(headers["step"])
    assert order == ["transfer_to", "ticket_to", "rooms"]
    assert saga_state(tour, saga) == "compensated"
    assert left(tour) == {}


def test_compensations_may_run_all_at_once(tour: Connection) -> None:
    saga = start_tour(tour, is_parallel=True)
    for step in ("rooms", "ticket_to"):
        consume_step(tour, step)
    assert one(tour, "select mbus.cancel_saga(%s, 'no more')", saga) is True
    assert ready(tour) == ["cancel_rooms", "cancel_ticket_to"]
    assert one(tour, "select mbus.cancel_saga(%s, 'again')", saga) is False
    for queue in ready(tour):
        consume(tour, queue)
    assert saga_state(tour, saga) == "compensated"
    assert column(tour, "select distinct error from mbus.saga_status") == ["no more"]
    assert left(tour) == {}


def test_a_saga_that_did_nothing_is_compensated_at_once(tour: Connection) -> None:
    saga = start_tour(tour)
    tour.execute("select mbus.cancel_saga(%s)", (saga,))
    assert saga_state(tour, saga) == "compensated"
    assert set(steps(tour, saga).values()) == {"skipped"}
    assert left(tour) == {}


def test_the_seeds_own_rollback_takes_the_forward_messages_by_iid(tour: Connection) -> None:
    saga = start_tour(tour)
    consume_step(tour, "rooms")
    with tour.transaction():
        headers = consume_step(tour, "ticket_to")
        tour.execute(
            "select mbus.take(i.iid) from mbus.take(%s) b, unnest((b.data->'id_to_take')::text[])"
            " i(iid)",
            (headers["bung"],),
        )
    assert steps(tour, saga) == {
        "rooms": "compensating",
        "ticket_to": "failed",
        "ticket_from": "skipped",
        "transfer_to": "skipped",
        "transfer_from": "skipped",
    }
    consume(tour, "cancel_rooms")
    assert saga_state(tour, saga) == "compensated"
    assert left(tour) == {}


def test_a_handler_that_rolls_back_changes_nothing(tour: Connection) -> None:
    saga = start_tour(tour)
    with tour.transaction(force_rollback=True):
        headers = consume_step(tour, "rooms")
        tour.execute("select mbus.take(%s)", (headers["bung"],))
    assert saga_state(tour, saga) == "running"
    assert ready(tour) == ["rooms_reservations"]
    maintain(tour, None)
    for step in FORWARD:
        consume_step(tour, step)
    assert saga_state(tour, saga) == "completed"


def test_a_step_that_is_put_back_is_not_done(tour: Connection) -> None:
    saga = start_tour(tour)
    with tour.transaction():
        headers = consume_step(tour, "rooms")
        again = "select mbus.post('rooms_reservations', ''::hstore, iid => %s)"
        tour.execute(again, (headers["iid"],))
    assert steps(tour, saga)["rooms"] == "ready"
    for step in FORWARD:
        assert saga_state(tour, saga) == "running"
        if step == "rooms":
            assert consume(tour, "rooms_reservations") is not None
        else:
            consume_step(tour, step)
    assert saga_state(tour, saga) == "completed"
    assert left(tour) == {}


def test_a_compensation_that_is_put_back_is_not_done(tour: Connection) -> None:
    saga = start_tour(tour)
    consume_step(tour, "rooms")
    tour.execute("select mbus.cancel_saga(%s)", (saga,))
    with tour.transaction():
        headers = consume(tour, UNDO["rooms"])
        assert headers is not None
        tour.execute(
            f"select mbus.post('{UNDO['rooms']}', ''::hstore, iid => %s)".encode(),
            (headers["iid"],),
        )
    assert saga_state(tour, saga) == "compensating"
    assert consume(tour, UNDO["rooms"]) is not None
    maintain(tour, None)
    assert saga_state(tour, saga) == "compensated"
    assert left(tour) == {}


def test_a_step_cannot_be_moved_away(tour: Connection) -> None:
    saga = start_tour(tour)
    with refused(tour, "MB012"):
        tour.execute("select mbus.move('rooms_reservations', 'transfers_to')")
    assert ready(tour) == ["rooms_reservations"]
    assert steps(tour, saga)["rooms"] == "ready"


def test_the_first_page_of_sagas_reads_no_others(tour: Connection) -> None:
    for _ in range(20):
        start_tour(tour)
    with tour.transaction():
        tour.execute("set local enable_seqscan = off")
        plans = used_plans(tour, "select * from mbus.saga_list order by id desc limit 3")
    read = [passed for plan in plans for _, table, passed, _ in touched(plan) if table == "saga"]
    assert read == [3]
