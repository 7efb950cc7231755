"""What happened to messages per minute, kept for eight days: counted once, merged after a day."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import Connection

from postroad.testing import DatabaseClock
from tests.fixtures.postgres import Connect
from tests.sql.calls import post_many, take

MINUTE = timedelta(minutes=1)


def maintain(connection: Connection, runs: int = 64) -> None:
    """Run maintenance as often as it takes for the rare work to be done once."""
    for _ in range(runs):
        connection.execute("select mbus.maintain()")


def traffic(connection: Connection, step: str = "1 minute", **names: str) -> list[tuple[Any, ...]]:
    return connection.execute(
        "select posted, consumed, rejected, died, expired, waiting, dead"
        " from mbus.traffic(mbus.now() - interval '9 days', %s::interval, %s, %s)",
        (step, names.get("queue"), names.get("consumer")),
    ).fetchall()


def test_counts_become_minutes_and_are_counted_once(database: str, connect: Connect) -> None:
    connection, clock = connect(database, autocommit=True), DatabaseClock(database)
    connection.execute("select mbus.create_queue('q'), mbus.create_consumer('q', 'second')")
    post_many(connection, 1)
    maintain(connection)
    clock.advance(MINUTE)
    post_many(connection, 5)
    assert len(take(connection, 2)) == 2
    maintain(connection)
    clock.advance(2 * MINUTE)
    maintain(connection)
    # How many wait is noted every five minutes.
    clock.advance(4 * MINUTE)
    maintain(connection)
    maintain(connection)
    found = connection.execute(
        "select c.name, sum(t.posted), sum(t.consumed) from mbus.traffic t"
        " join mbus.consumer c on c.id = t.consumer_id group by 1 order by 1"
    ).fetchall()
    assert found == [("default", 5, 2), ("second", 5, 0)]
    # A post counts once per queue, and four messages wait for one consumer, six for the other.
    assert sum(row[0] for row in traffic(connection)) == 5
    assert max(row[5] or 0 for row in traffic(connection, queue="q")) == 10
    assert max(row[5] or 0 for row in traffic(connection, consumer="second")) == 6
    assert traffic(connection, queue="nobody") == []
    assert connection.execute("select count(*) from mbus.tally").fetchall() == [(0,)]


def test_after_a_day_minutes_are_merged_and_after_eight_days_deleted(
    database: str, connect: Connect
) -> None:
    connection, clock = connect(database, autocommit=True), DatabaseClock(database)
    connection.execute("select mbus.create_queue('q')")
    connection.execute(
        "insert into mbus.traffic (consumer_id, since, consumed, died, waiting)"
        " select c.id, date_trunc('hour', mbus.now()) - n * interval '1 minute', 1, 2, n"
        " from mbus.consumer c cross join generate_series(0, 59) n"
    )
    before = traffic(connection, "1 day")
    clock.advance(timedelta(days=1, minutes=1))
    maintain(connection)
    (rows,) = connection.execute("select count(*) from mbus.traffic").fetchall()
    assert rows == (5,)
    after = traffic(connection, "1 day")
    assert [sum(row[1] for row in found) for found in (before, after)] == [60, 60]
    assert max(row[5] for row in after) == 59
    clock.advance(timedelta(days=8))
    maintain(connection)
    assert traffic(connection) == []
