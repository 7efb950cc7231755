"""FIFO per group: one message in flight per group and consumer, in order, whatever happens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import ack, lease, maintain, nack, one, post, refused, shift_clock, take


def post_groups(connection: Connection, *names: str) -> dict[str, str]:
    """Post messages named a1, a2, b1 … to the groups a, b …; a name without letter has none."""
    return {
        name: post(connection, name, f"group=>{name[0]}" if name[0].isalpha() else None)
        for name in names
    }


def test_one_of_each_group_is_taken_at_a_time(bus: Connection) -> None:
    post_groups(bus, "a1", "a2", "b1", "1", "a3", "b2", "2")
    assert take(bus) == ["a1", "b1", "1", "2"]
    assert take(bus) == ["a2", "b2"]
    assert take(bus) == ["a3"]


def test_asking_for_few_looks_far_enough(bus: Connection) -> None:
    post_groups(bus, "a1", "a2", "a3", "b1", "b2", "c1")
    assert take(bus, 2) == ["a1", "b1"]
    assert take(bus, 2) == ["a2", "b2"]


def test_no_other_session_gets_the_group_while_one_of_it_is_in_flight(
    live: str, connect: Connect
) -> None:
    first, second = connect(live), connect(live)
    post_groups(first, "a1", "a2", "b1")
    first.commit()
    assert take(first, 1) == ["a1"]
    assert take(second) == ["b1"]
    first.commit()
    assert take(second) == ["a2"]


def test_a_rollback_brings_the_group_back_in_order(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    post_groups(first, "a1", "a2")
    first.commit()
    assert take(first) == ["a1"]
    assert take(second) == []
    first.rollback()
    assert take(second, 1) == ["a1"]


def test_a_lease_holds_its_group_until_it_is_answered(bus: Connection) -> None:
    post_groups(bus, "a1", "a2", "b1")
    (first, iid, token, _), (other, _, _, _) = lease(bus, 9)
    assert (first, other) == ("a1", "b1")
    assert take(bus) == []
    ack(bus, iid, token)
    assert take(bus) == ["a2"]


def test_a_nack_holds_the_group_until_the_retry_is_done(bus: Connection) -> None:
    post_groups(bus, "a1", "a2")
    ((_, iid, token, _),) = lease(bus)
    assert nack(bus, iid, token, delay="1 minute") == "delayed"
    assert take(bus) == []
    maintain(bus)
    assert take(bus) == []
    shift_clock(bus, timedelta(minutes=2))
    ((number, iid, token, attempt),) = lease(bus, 9)
    assert (number, attempt) == ("a1", 2)
    ack(bus, iid, token)
    assert take(bus) == ["a2"]


def test_a_nack_without_delay_comes_before_the_rest_of_its_group(bus: Connection) -> None:
    post_groups(bus, "a1", "a2")
    ((_, iid, token, _),) = lease(bus)
    assert nack(bus, iid, token, delay="0") == "ready"
    assert take(bus) == ["a1"]
    assert take(bus) == ["a2"]


def test_an_ended_lease_comes_before_the_rest_of_its_group(bus: Connection) -> None:
    post_groups(bus, "a1", "a2")
    lease(bus)
    shift_clock(bus, timedelta(minutes=1))
    assert take(bus, 1) == ["a1"]
    assert take(bus) == ["a2"]


def test_a_reject_keeps_the_order(bus: Connection) -> None:
    iids = post_groups(bus, "a1", "a2")
    assert one(bus, "select mbus.reject('q', 'default', %s, '0')", iids["a1"]) == "ready"
    assert take(bus) == ["a1"]
    assert take(bus) == ["a2"]


def test_a_dead_message_frees_its_group(bus: Connection) -> None:
    post_groups(bus, "a1", "a2")
    ((_, iid, token, _),) = lease(bus)
    nack(bus, iid, token, park=True)
    assert take(bus) == ["a2"]


def test_a_taken_message_frees_its_group(bus: Connection) -> None:
    iids = post_groups(bus, "a1", "a2")
    lease(bus)
    bus.execute("select mbus.take(%s)", (iids["a1"],))
    assert take(bus) == ["a2"]


def test_groups_of_two_consumers_are_independent(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    post_groups(bus, "a1", "a2")
    lease(bus)
    assert take(bus, whose="q_by_second") == ["a1"]
    assert take(bus, whose="q_by_second") == ["a2"]
    assert take(bus) == []


def test_backlog_from_before_the_first_group_is_kept(bus: Connection) -> None:
    post(bus, 1)
    post_groups(bus, "a1", "a2")
    assert take(bus) == ["1", "a1"]


def test_an_expired_retry_frees_its_group(bus: Connection) -> None:
    post(bus, "a1", "group=>a", expires=one(bus, "select mbus.now() + interval '1 minute'"))
    post_groups(bus, "a2")
    ((_, iid, token, _),) = lease(bus)
    nack(bus, iid, token, delay="0")
    shift_clock(bus, timedelta(minutes=2))
    take(bus)
    assert take(bus) in (["a2"], [])
    assert one(bus, "select mbus.peek_q()") is False


def test_a_group_with_a_priority_is_refused(bus: Connection) -> None:
    with refused(bus, "MB012"):
        post(bus, 1, "group=>a, priority=>high")
    post(bus, 2, "group=>a, priority=>normal")


def test_names_that_no_index_could_hold_are_refused(bus: Connection) -> None:
    long = "".join(chr(97 + (n * n * 7 + n // 26) % 26) for n in range(9000))
    for header in ("group", "dedup_key"):
        with refused(bus, "MB012"):
            post(bus, 1, f"{header}=>{long}")


@pytest.mark.parametrize("consumers", [1, 2])
def test_a_transaction_older_than_the_first_group_leaves_it_alone(
    live: str, connect: Connect, consumers: int
) -> None:
    older, other = connect(live), connect(live, autocommit=True)
    if consumers == 2:
        other.execute("select mbus.create_consumer('q', 'other')")
    post(older, 1)
    assert take(older) == ["1"]
    post_groups(other, "a1", "a2", "2")
    # Whatever functions it runs, it takes one of the group or none, never both.
    assert take(older) in (["2"], ["a1", "2"])
    older.rollback()
    assert take(other) in (["a1", "2"], ["a1", "2"])
    assert take(other) == ["a2"]


@pytest.mark.parametrize("consumers", [1, 2])
def test_a_group_without_a_name_is_none(bus: Connection, consumers: int) -> None:
    if consumers == 2:
        bus.execute("select mbus.create_consumer('q', 'other')")
    post(bus, 1, "group=>NULL")
    assert take(bus) == ["1"]
    post(bus, 2, "group=>a")
    assert take(bus) == ["2"]
    post(bus, 3, "group=>NULL")
    assert take(bus) == ["3"]


def test_a_lease_at_the_floor_of_the_tokens_holds_its_group(live: str, connect: Connect) -> None:
    connection = connect(live, autocommit=True)
    post_groups(connection, "a1", "a2", "b1", "b2")
    (_, iid, token, _), _ = lease(connection, 2)
    # The floor rises to the oldest lease once no transaction can draw a smaller token.
    for _ in range(3):
        maintain(connection)
    assert one(connection, "select last_value from mbus.lease_floor") == token
    assert take(connection) == []
    ack(connection, iid, token)
    assert take(connection) == ["a2"]
