"""Limits of a consumer: rate, concurrency, turns by key, and limits per key."""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import pytest
from psycopg.errors import QueryCanceled

from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import (
    Connection,
    ack,
    column,
    lease,
    maintain,
    one,
    post_many,
    refused,
    rows,
    take,
)

NOISY = 100_000 if os.environ.get("POSTROAD_STRESS") else 3_000
LIMIT = "select mbus.limit_consumer('q', 'default', "


def freeze(connection: Connection, by: timedelta = timedelta(0)) -> None:
    """Stop the bus's clock, this much later than it stands."""
    now = one(connection, "select mbus.now() + %s", by)
    connection.execute(
        "create or replace function mbus.now() returns timestamptz"
        f" language sql volatile parallel safe as $$ select '{now}'::timestamptz $$".encode()
    )


def post_for(connection: Connection, partner: str, count: int) -> None:
    connection.execute(
        "select mbus.postn_q(array_fill('n=>1'::hstore, array[%s]), null,"
        " array[hstore('partner', %s)])",
        (count, partner),
    )


def partners(connection: Connection, amount: int) -> Counter[str]:
    query = "select properties -> 'partner' from mbus.consumen_q_by_default(%s)"
    return Counter(column(connection, query, amount))


def limited_by(connection: Connection) -> str | None:
    return one(connection, "select limited_by from mbus.consumers where consumer = 'default'")


@pytest.mark.both_versions
def test_a_rate_allows_a_burst_and_then_so_many_per_second(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q')")
    post_many(connection, 100)
    connection.execute((LIMIT + "rate => 10, burst => 4)").encode())
    freeze(connection)
    assert len(take(connection, 3)) == 3
    assert limited_by(connection) is None
    # What is asked for and not there is not used up.
    assert len(lease(connection, 20)) == 1
    assert (take(connection), limited_by(connection)) == ([], "rate")
    freeze(connection, timedelta(seconds=0.25))
    assert len(take(connection)) == 2
    freeze(connection, timedelta(minutes=5))
    assert len(take(connection)) == 4
    connection.execute((LIMIT[:-2] + ")").encode())
    # With the one whose lease has ended.
    assert len(take(connection)) == 91
    assert column(connection, "select rate from mbus.consumers") == [None]


@pytest.mark.both_versions
def test_what_was_not_found_is_not_used_up(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q')")
    connection.execute((LIMIT + "rate => 10, concurrency => 7)").encode())
    freeze(connection)
    for _ in range(3):
        assert take(connection) == []
    post_many(connection, 10)
    assert (len(take(connection)), len(take(connection))) == (7, 0)


@pytest.mark.both_versions
@pytest.mark.parametrize("feature", ["plain", "groups", "fanout"])
def test_concurrency_counts_open_transactions_and_leases_of_all_sessions(
    database: str, connect: Connect, feature: str
) -> None:
    owner, first, second = (connect(database, autocommit=True) for _ in range(3))
    owner.execute("select mbus.create_queue('q')")
    if feature == "fanout":
        owner.execute("select mbus.create_consumer('q', 'other')")
    if feature == "groups":
        owner.execute("select mbus.post_q('n=>0', 'group=>g')")
    post_many(owner, 50)
    owner.execute((LIMIT + "concurrency => 5)").encode())
    with first.transaction():
        assert len(take(first, 2)) == 2
        leased = lease(second, 2)
        assert len(leased) == 2
        assert len(take(second)) == 1
        # Consumed by its commit, so one more may be held.
        assert len(take(second)) == 1
        with second.transaction():
            assert len(take(second)) == 1
            assert (limited_by(owner), take(owner)) == ("concurrency", [])
    assert len(lease(second, 20)) == 3
    assert (limited_by(owner), take(owner)) == ("concurrency", [])
    ack(second, leased[0][1], leased[0][2])
    assert len(take(owner)) == 1
    # Another consumer is not limited.
    if feature == "fanout":
        assert len(take(owner, whose="q_by_other")) == 50


@pytest.mark.both_versions
@pytest.mark.parametrize("mode", ["direct", "fanout"])
def test_a_noisy_key_does_not_delay_the_others(connection: Connection, mode: str) -> None:
    connection.execute("select mbus.create_queue('q')")
    if mode == "fanout":
        connection.execute("select mbus.create_consumer('q', 'other')")
    connection.execute((LIMIT + "key => 'partner')").encode())
    for _ in range(0, NOISY, 1000):
        post_for(connection, "noisy", 1000)
    for number in range(5):
        post_for(connection, f"quiet{number}", 20)
    connection.execute("select mbus.post_q('n=>1')")
    # Seven keys share 70, and the key that has fewer messages leaves its rest to the others.
    found = partners(connection, 70)
    assert found.pop(None) == 1
    assert min(found.values()) >= 10
    assert sum(found.values()) == 69
    leased = column(
        connection, "select properties -> 'partner' from mbus.leasen_q_by_default(100, '1 minute')"
    )
    assert Counter(leased).keys() == found.keys()
    assert min(Counter(leased).values()) >= 5
    # Every message is taken once.
    total, left = 70 + len(leased), partners(connection, NOISY + 1000)
    assert total + left.total() == NOISY + 101
    assert left["noisy"] > 0.9 * NOISY


def test_keys_take_turns_from_one_take_to_the_next(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q')")
    connection.execute((LIMIT + "key => 'partner')").encode())
    for partner in "abc":
        post_for(connection, partner, 10)
    found = [next(iter(partners(connection, 1))) for _ in range(6)]
    assert found == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.both_versions
@pytest.mark.parametrize("mode", ["direct", "fanout"])
def test_keys_that_have_no_messages_left_do_not_stop_the_others(
    connection: Connection, mode: str
) -> None:
    connection.execute("select mbus.create_queue('q')")
    if mode == "fanout":
        connection.execute("select mbus.create_consumer('q', 'other')")
    connection.execute((LIMIT + "key => 'partner')").encode())
    for partner in "abc":
        post_for(connection, partner, 3 if partner == "b" else 1)
    found = [list(partners(connection, 1)) for _ in range(6)]
    assert found == [["a"], ["b"], ["c"], ["b"], ["b"], []]


@pytest.mark.parametrize("limit", ["", ", key_concurrency => 1", ", key_rate => 1"])
def test_a_key_that_is_held_or_used_up_does_not_stop_the_others(
    database: str, connect: Connect, limit: str
) -> None:
    owner, first, second = (connect(database, autocommit=True) for _ in range(3))
    owner.execute("select mbus.create_queue('q')")
    owner.execute(f"{LIMIT}key => 'partner'{limit})".encode())
    for partner in "abc":
        post_for(owner, partner, 1 if not limit else 3)
    freeze(owner)
    with first.transaction():
        assert partners(first, 1) == {"a": 1}
        with second.transaction():
            assert partners(second, 1) == {"b": 1}
            assert partners(second, 1) == {"c": 1}


def test_a_cancelled_take_does_not_keep_the_lock_of_the_limits(
    database: str, connect: Connect, in_thread: InThread
) -> None:
    limited, other = (connect(database, autocommit=True) for _ in range(2))
    limited.execute("select mbus.create_queue('q')")
    limited.execute((LIMIT + "rate => 1000000, concurrency => 1000)").encode())
    # Of a queue without messages a take gives back everything.
    query = "select count(*) from mbus.consumen_q_by_default(5)"
    cancel = "select pg_sleep(random() * 0.006), pg_cancel_backend(%s)"
    held = (
        "select count(*) from pg_locks where pid = %s and locktype = 'advisory'"
        " and classid::bigint = mbus._limit_class()::bigint & 4294967295"
    )
    cancelled = 0
    for _ in range(400):
        cancelling = in_thread(other.execute, cancel, (limited.info.backend_pid,))
        try:
            for _ in range(3):
                limited.execute(query)
        except QueryCanceled:
            cancelled += 1
        with suppress(QueryCanceled):
            cancelling.result(30)
            limited.execute("select 1")
        assert one(other, held, limited.info.backend_pid) == 0
    assert cancelled > 20


def test_keys_whose_rate_is_free_again_are_forgotten(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q')")
    connection.execute((LIMIT + "key => 'partner', key_rate => 0.5)").encode())
    freeze(connection)
    for partner in "abc":
        post_for(connection, partner, 2)
    assert partners(connection, 3).total() == 3
    left = "select key from mbus.limited_key order by key"
    freeze(connection, timedelta(seconds=1))
    maintain(connection)
    assert column(connection, left) == ["a", "b", "c"]
    freeze(connection, timedelta(seconds=1.5))
    assert partners(connection, 1) == {"a": 1}
    maintain(connection)
    assert column(connection, left) == ["a"]


def test_a_key_whose_rate_is_used_up_is_not_kept_from_others(
    database: str, connect: Connect
) -> None:
    owner, first, second = (connect(database, autocommit=True) for _ in range(3))
    owner.execute("select mbus.create_queue('q')")
    owner.execute((LIMIT + "key => 'partner', key_rate => 1)").encode())
    freeze(owner)
    for partner in "ab":
        post_for(owner, partner, 3)
    assert partners(owner, 1) == {"a": 1}
    with first.transaction():
        # It has asked key a, too.
        assert partners(first, 2) == {"b": 1}
        freeze(owner, timedelta(seconds=1))
        assert partners(second, 2) == {"a": 1}


def test_a_clock_that_was_set_back_does_not_stop_the_consumer(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q')")
    post_many(connection, 20)
    connection.execute((LIMIT + "rate => 10, burst => 4)").encode())
    freeze(connection)
    assert len(take(connection)) == 4
    freeze(connection, timedelta(hours=-1))
    assert take(connection) == []
    freeze(connection, timedelta(seconds=0.25))
    assert len(take(connection)) == 2
    connection.execute((LIMIT + "key => 'partner', key_rate => 3)").encode())
    assert len(take(connection)) == 3
    freeze(connection, timedelta(hours=-1))
    assert (len(take(connection)), take(connection)) == (3, [])
    freeze(connection, timedelta(seconds=1))
    assert len(take(connection)) == 3


@pytest.mark.both_versions
def test_limits_per_key_hold_across_sessions(database: str, connect: Connect) -> None:
    owner, first, second = (connect(database, autocommit=True) for _ in range(3))
    owner.execute("select mbus.create_queue('q')")
    owner.execute((LIMIT + "key => 'partner', key_concurrency => 2)").encode())
    for partner in "ab":
        post_for(owner, partner, 10)
    with first.transaction():
        assert partners(first, 1) == {"a": 1}
        # One transaction at a time takes of a key.
        assert partners(second, 10) == {"b": 2}
    leased = lease(second, 20)
    assert len(leased) == 4
    assert partners(first, 10) == {}
    ack(second, leased[0][1], leased[0][2])
    assert partners(first, 10).total() == 1
    freeze(owner)
    owner.execute((LIMIT + "key => 'partner', key_rate => 2)").encode())
    assert partners(owner, 10) == {"a": 2, "b": 2}
    assert partners(owner, 10) == {}
    freeze(owner, timedelta(seconds=0.5))
    assert partners(owner, 10) == {"a": 1, "b": 1}


@pytest.mark.both_versions
def test_limits_live_as_long_as_their_consumer(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q'), mbus.create_consumer('q', 'other')")
    everything = "rate => 5, concurrency => 3, key => 'partner', key_rate => 1)"
    for consumer in ("default", "other"):
        connection.execute(f"select mbus.limit_consumer('q', '{consumer}', {everything}".encode())
    post_many(connection, 3)
    maintain(connection)
    left = "select count(*) from pg_class where relname ~ '^(limit|key)\\$'"
    assert one(connection, left) >= 4
    connection.execute("select mbus.drop_consumer('q', 'other')")
    assert len(take(connection)) == 1
    connection.execute("select mbus.drop_queue('q')")
    assert one(connection, left) == 0
    assert rows(connection, "select * from mbus.consumer_limit") == []


def test_a_limit_that_is_removed_meanwhile_shows_none(database: str, connect: Connect) -> None:
    first, second = connect(database, autocommit=True), connect(database)
    first.execute("select mbus.create_queue('q')")
    first.execute((LIMIT + "rate => 1)").encode())
    second.execute("begin isolation level repeatable read")
    second.execute("select 1 from mbus.queue")
    first.execute("select mbus.limit_consumer('q', 'default')")
    assert rows(second, "select rate, limited_by from mbus.consumers") == [(1.0, None)]


@pytest.mark.parametrize(
    "limits",
    [
        "rate => 0", "rate => 'nan'", "burst => 3", "concurrency => 0", "concurrency => 1001",
        "key_rate => 1", "key => ''", "rate => 1, burst => 0", "key => 'a', key_concurrency => 0",
    ],
)  # fmt: skip
def test_impossible_limits_are_refused(connection: Connection, limits: str) -> None:
    connection.execute("select mbus.create_queue('q')")
    with refused(connection, "MB012"):
        connection.execute((LIMIT + limits + ")").encode())


def test_a_consumer_with_a_cursor_has_no_limits(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q')")
    connection.execute("select mbus.create_consumer('q', 'reader', contract => 'cursor')")
    with refused(connection, "MB012"):
        connection.execute("select mbus.limit_consumer('q', 'reader', rate => 1)")


@pytest.mark.both_versions
@pytest.mark.parametrize("mode", ["direct", "fanout"])
def test_a_long_key_counts_by_its_first_hundred_characters(
    connection: Connection, mode: str
) -> None:
    """An index entry has a maximum size: a producer's long value must not make its post fail."""
    connection.execute("select mbus.create_queue('q')")
    if mode == "fanout":
        connection.execute("select mbus.create_consumer('q', 'other')")
    connection.execute((LIMIT + "key => 'partner', key_rate => 1)").encode())
    freeze(connection)
    # Random, because PostgreSQL compresses long values.
    long = random.Random(1).randbytes(9_000).hex()
    for partner in (long, long[:100] + "x", long[1:]):
        post_for(connection, partner, 2)
    assert partners(connection, 10).total() == 2
    assert column(connection, "select length(key) from mbus.limited_key") == [100, 100]
