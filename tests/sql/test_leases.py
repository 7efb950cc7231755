"""Leases: work that outlives a transaction, fenced by a token."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock
from tests.fixtures.postgres import Connect
from tests.sql.calls import (
    ack,
    column,
    lease,
    maintain,
    nack,
    one,
    post,
    post_many,
    refused,
    rows,
    shift_clock,
    status,
    stop_clock,
    take,
)

pytestmark = pytest.mark.both_versions

MINUTE = timedelta(minutes=1)


def test_a_lease_hides_the_message_and_ack_consumes_it(bus: Connection) -> None:
    post(bus, 1)
    ((number, iid, token, attempt),) = lease(bus)
    assert (number, attempt) == ("1", 1)
    assert take(bus) == lease(bus) == []
    assert status(bus, "leased") == 1
    ack(bus, iid, token)
    assert status(bus, "depth") == 0


def test_leases_come_in_order_each_with_its_own_token(bus: Connection) -> None:
    iids = post_many(bus, 5)
    found = lease(bus, 3)
    assert [(number, iid) for number, iid, _, _ in found] == list(zip("123", iids[:3], strict=True))
    assert len({token for _, _, token, _ in found}) == 3
    assert [number for number, _, _, _ in lease(bus, 9)] == ["4", "5"]
    assert lease(bus, 0) == []


def test_a_lease_carries_what_consume_would(bus: Connection) -> None:
    post(bus, 1, "trace=>x", expires="2100-01-01")
    bus.execute("savepoint before")
    consumed = rows(bus, "select * from mbus.consume('q')")
    bus.execute("rollback to before")
    columns = "id, added, iid, delayed_until, expires, received, headers, properties, data"
    assert rows(bus, f"select {columns} from mbus.lease_q_by_default()") == consumed


@pytest.mark.parametrize("payload", ["jsonb", "text", "bytea"])
def test_other_payloads_can_be_leased(connection: Connection, payload: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    connection.execute("select mbus.post('q', '12'::text)")
    ((iid, token),) = rows(connection, "select iid, token from mbus.lease_q_by_default()")
    assert nack(connection, iid, token, delay="0") == "ready"
    assert column(connection, "select attempt from mbus.lease_q_by_default()") == [2]


def test_a_rolled_back_lease_was_never_made(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    post(first, 1)
    first.commit()
    lease(first)
    first.rollback()
    assert [attempt for _, _, _, attempt in lease(second)] == [1]


def test_a_lost_connection_does_not_end_a_committed_lease(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    post(first, 1)
    ((_, iid, token, _),) = lease(first)
    first.commit()
    first.close()
    assert take(second) == []
    ack(second, iid, token)


def test_an_ended_lease_can_neither_ack_nor_extend_nor_nack(bus: Connection) -> None:
    post(bus, 1)
    ((_, iid, token, _),) = lease(bus)
    shift_clock(bus, MINUTE)
    for call in ("ack(%s, %s)", "extend(%s, %s)", "nack(%s, %s)"):
        with refused(bus, "MB015"):
            bus.execute(f"select mbus.{call}".encode(), (iid, token))
    assert one(bus, "select mbus.ackn(array[%s], array[%s::bigint])", iid, token) == [iid]
    assert one(bus, "select mbus.extendn(array[%s], array[%s::bigint])", iid, token) == [iid]
    assert take(bus) == ["1"]


@pytest.mark.parametrize("headers", [None, "group=>a"], ids=["on_the_ring", "aside"])
def test_a_lease_has_ended_at_its_end(bus: Connection, headers: str | None) -> None:
    post(bus, 1, headers)
    ((iid, token, until),) = rows(
        bus, "select iid, token, leased_until from mbus.lease_q_by_default()"
    )
    stop_clock(bus, until)
    for call in ("ack(%s, %s)", "extend(%s, %s)", "nack(%s, %s)"):
        with refused(bus, "MB015"):
            bus.execute(f"select mbus.{call}".encode(), (iid, token))
    assert one(bus, "select mbus.ackn_q_by_default(%s, %s::bigint[])", [iid], [token]) == [token]
    assert one(bus, "select mbus.extendn(%s, %s::bigint[])", [iid], [token]) == [iid]
    stop_clock(bus, until - timedelta(microseconds=1))
    ack(bus, iid, token)


def test_the_next_holder_is_safe_from_the_last_one(bus: Connection) -> None:
    post(bus, 1)
    ((_, iid, old, _),) = lease(bus)
    shift_clock(bus, MINUTE)
    ((_, same, new, attempt),) = lease(bus)
    assert (same, attempt) == (iid, 2)
    with refused(bus, "MB015"):
        ack(bus, iid, old)
    ack(bus, iid, new)


def test_a_token_does_not_open_another_message(bus: Connection) -> None:
    post_many(bus, 2)
    (_, first, _, _), (_, _, second_token, _) = lease(bus, 2)
    with refused(bus, "MB015"):
        ack(bus, first, second_token)
    assert status(bus, "leased") == 2


def test_an_ended_lease_comes_back_by_maintenance(bus: Connection) -> None:
    post(bus, 1)
    lease(bus)
    assert maintain(bus).get("q", {}).get("ended", 0) == 0
    shift_clock(bus, MINUTE)
    assert maintain(bus)["q"]["ended"] == 1
    assert status(bus, "ready") == 1
    assert rows(bus, "select data->'n', headers->'attempts' from mbus.consume('q')") == [("1", "1")]


def test_an_ended_lease_comes_back_by_a_plain_consume(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    first, second = connect(live), connect(live)
    post(first, 1)
    lease(first)
    first.commit()
    clock.advance(MINUTE)
    assert take(second) == ["1"]
    second.commit()
    assert take(first) == []


def test_extend_keeps_the_message(bus: Connection) -> None:
    post(bus, 1)
    ((_, iid, token, _),) = lease(bus)
    shift_clock(bus, timedelta(seconds=20))
    assert one(bus, "select mbus.extend(%s, %s) > mbus.now()", iid, token)
    shift_clock(bus, timedelta(seconds=45))
    assert take(bus) == []
    assert one(bus, "select mbus.extendn(array[%s], array[%s::bigint], '1 hour')", iid, token) == []
    shift_clock(bus, timedelta(minutes=30))
    ack(bus, iid, token)


def test_many_are_acked_at_once_and_the_lost_ones_named(bus: Connection) -> None:
    post_many(bus, 3)
    found = lease(bus, 3)
    ack(bus, found[1][1], found[1][2])
    iids = [iid for _, iid, _, _ in found]
    tokens = [token for _, _, token, _ in found]
    assert one(bus, "select mbus.ackn(%s, %s)", iids, tokens) == [iids[1]]
    assert status(bus, "depth") == 0
    assert one(bus, "select mbus.ackn('{}', '{}')") == []


@pytest.mark.parametrize("function", ["ackn", "extendn"])
def test_iids_and_tokens_come_in_pairs(bus: Connection, function: str) -> None:
    post_many(bus, 2)
    found = lease(bus, 2)
    with refused(bus, "MB012"):
        bus.execute(
            f"select mbus.{function}(%s, %s)".encode(),
            ([iid for _, iid, _, _ in found], [found[0][2]]),
        )


def test_backoff_doubles_up_to_its_maximum(bus: Connection) -> None:
    bus.execute("select mbus.alter_consumer('q', 'default', 99, '10 seconds', '60 seconds')")
    post(bus, 1)
    waits = []
    passed = timedelta(0)
    for _ in range(5):
        ((_, iid, token, _),) = lease(bus)
        assert nack(bus, iid, token) == "delayed"
        ((wait,),) = rows(
            bus, "select round(extract(epoch from due_at - mbus.now())) from mbus.delayed"
        )
        waits.append(int(wait))
        assert take(bus) == []
        passed += timedelta(seconds=int(wait) + 1)
        shift_clock(bus, passed)
    # Half of each is left to chance.
    assert all(
        most / 2 <= wait <= most for wait, most in zip(waits, [10, 20, 40, 60, 60], strict=True)
    ), waits


def test_backoff_never_overflows(bus: Connection) -> None:
    bus.execute("select mbus.alter_consumer('q', 'default', 1000, '10000 days', '20000 days')")
    post(bus, 1)
    bus.execute('update mbus."qt$q$0" set trail = \'{"attempts": 900}\'')
    ((_, iid, token, attempt),) = lease(bus)
    assert attempt == 901
    assert nack(bus, iid, token) == "delayed"


def test_a_given_delay_wins_over_the_backoff(bus: Connection) -> None:
    post_many(bus, 2)
    (_, first, first_token, _), (_, second, second_token, _) = lease(bus, 2)
    assert nack(bus, first, first_token, delay="0") == "ready"
    assert nack(bus, second, second_token, delay="1 hour") == "delayed"
    assert take(bus) == ["1"]
    shift_clock(bus, 61 * MINUTE)
    assert take(bus) == ["2"]


def test_a_message_dies_after_its_last_attempt_and_keeps_iid_and_history(bus: Connection) -> None:
    bus.execute("select mbus.alter_consumer('q', 'default', max_attempts => 2)")
    iid = post(bus, 1)
    for attempt, outcome in ((1, "ready"), (2, "dmq")):
        ((_, same, token, tried),) = lease(bus)
        assert (same, tried) == (iid, attempt)
        assert nack(bus, iid, token, delay="0", error=f"failure {attempt}") == outcome
    ((dead, error, attempts, history),) = rows(
        bus, "select iid, error, attempts, history from mbus.dead"
    )
    assert (dead, error, attempts) == (iid, "failure 2", 2)
    assert [(entry["attempt"], entry["error"]) for entry in history] == [
        (1, "failure 1"),
        (2, "failure 2"),
    ]
    assert rows(bus, "select depth, dmq from mbus.status") == [(0, 1)]


def test_leases_that_end_are_attempts_too(bus: Connection) -> None:
    bus.execute("select mbus.alter_consumer('q', 'default', max_attempts => 2)")
    post(bus, 1)
    for step in (1, 2):
        assert [attempt for _, _, _, attempt in lease(bus)] == [step]
        shift_clock(bus, step * MINUTE)
        maintain(bus)
    assert take(bus) == []
    assert rows(bus, "select error, attempts, jsonb_array_length(history) from mbus.dead") == [
        ("the lease ended without an answer", 2, 2)
    ]


def test_a_message_is_parked_at_once(bus: Connection) -> None:
    post(bus, 1)
    ((_, iid, token, _),) = lease(bus)
    assert nack(bus, iid, token, error="poison", park=True) == "dmq"
    assert rows(bus, "select iid, error, attempts from mbus.dead") == [(iid, "poison", 1)]


def test_redrive_gives_dead_messages_back_with_fresh_attempts(bus: Connection) -> None:
    iids = post_many(bus, 3)
    for _, iid, token, _ in lease(bus, 3):
        nack(bus, iid, token, park=True)
    assert one(bus, "select mbus.redrive('q', iid => %s)", iids[1]) == 1
    assert [found[:2] for found in lease(bus, 9)] == [("2", iids[1])]
    assert one(bus, "select mbus.redrive('q', 'default')") == 2
    assert one(bus, "select mbus.redrive('q')") == 0
    found = lease(bus, 9)
    assert [(number, attempt) for number, _, _, attempt in found] == [("1", 1), ("3", 1)]
    nack(bus, found[0][1], found[0][2], park=True)
    assert one(bus, "select jsonb_array_length(history) from mbus.dead") == 2


def test_redrive_goes_in_batches_and_leaves_expired_messages_in_the_dmq(bus: Connection) -> None:
    post(bus, 0, expires="2100-01-01")
    post_many(bus, 5)
    for _, iid, token, _ in lease(bus, 6):
        nack(bus, iid, token, park=True)
    bus.execute("update mbus.dmq set expires = mbus.now() where expires is not null")
    redrive = "select mbus.redrive('q', amt => 3)"
    assert [one(bus, redrive) for _ in range(3)] == [3, 2, 0]
    assert take(bus) == ["1", "2", "3", "4", "5"]
    assert status(bus, "dmq") == 1


def test_repeated_redrives_end_while_consumers_fail_again(bus: Connection) -> None:
    post_many(bus, 2)
    before = "2100-01-01"
    for amount in (2, 0):
        for _, iid, token, _ in lease(bus, 2):
            nack(bus, iid, token, park=True)
        query = "select mbus.redrive('q', died_before => %s)"
        assert one(bus, query, before) == amount
        before = "2000-01-01"


def test_reject_does_for_a_transaction_what_nack_does_for_a_lease(bus: Connection) -> None:
    bus.execute("select mbus.alter_consumer('q', 'default', max_attempts => 2)")
    iid = post(bus, 1)
    query = "select mbus.reject('q', 'default', %s, '0', 'no')"
    assert one(bus, query, iid) == "ready"
    with bus.transaction(force_rollback=True):
        assert rows(bus, "select headers->'attempts' from mbus.consume('q')") == [("1",)]
    assert one(bus, query, iid) == "dmq"


def test_only_the_last_failures_are_remembered(bus: Connection) -> None:
    bus.execute("select mbus.alter_consumer('q', 'default', max_attempts => 25)")
    iid = post(bus, 1)
    for attempt in range(25):
        bus.execute("select mbus.reject('q', 'default', %s, '0', %s)", (iid, str(attempt)))
    ((attempts, errors),) = rows(
        bus,
        "select attempts, (select array_agg(e->>'error') from jsonb_array_elements(history) e)"
        " from mbus.dead",
    )
    assert (attempts, errors) == (25, [str(n) for n in range(5, 25)])


def test_reject_leaves_the_leased_and_the_dead_alone(bus: Connection) -> None:
    """By the time a handler has rolled back somebody else may have its message."""
    iid = post(bus, 1)
    ((_, _, token, _),) = lease(bus)
    assert one(bus, "select mbus.reject('q', 'default', %s)", iid) == "absent"
    assert nack(bus, iid, token, park=True) == "dmq"
    assert one(bus, "select mbus.reject('q', 'default', %s)", iid) == "absent"
    assert status(bus, "dmq") == 1


def test_a_token_is_good_for_its_own_message_only(bus: Connection) -> None:
    post_many(bus, 2)
    (_, first, one_token, _), (_, second, other_token, _) = lease(bus, 2)
    crossed = [first, second, "rubbish"], [other_token, one_token, one_token]
    assert one(bus, "select mbus.ackn(%s, %s)", *crossed) == crossed[0]
    assert one(bus, "select mbus.extendn(%s, %s)", *crossed) == crossed[0]
    assert status(bus, "leased") == 2
    assert one(bus, "select mbus.ackn(%s, %s)", [first, "rubbish"], [one_token, 0]) == ["rubbish"]
    assert status(bus, "leased") == 1


def test_a_time_beyond_measure_is_refused(bus: Connection) -> None:
    post(bus, 1)
    ((_, iid, token, _),) = lease(bus)
    for call in (
        "mbus.lease_q_by_default(1, '300000 years')",
        f"mbus.extend('{iid}', {token}, '300000 years')",
        f"mbus.nack('{iid}', {token}, '300000 years')",
        "mbus.alter_consumer('q', 'default', backoff => '100000000 years')",
        "mbus.post('q', 'a=>1'::hstore, 'dedup_key=>a,dedup_window=>\"300000 years\"')",
        "mbus.request('q', 'a=>1'::hstore, timeout => '300000 years')",
        "mbus.purge('q', amt => -1)",
    ):
        with refused(bus, "MB012"):
            bus.execute(f"select {call}".encode())
