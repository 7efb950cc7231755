"""Short words for what the SQL tests do all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql


def rows(connection: Connection, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode(), parameters or None).fetchall()


def one(connection: Connection, query: str, *parameters: object) -> Any:
    """Return the only column of the only row."""
    found = rows(connection, query, *parameters)
    assert len(found) == 1, found
    return found[0][0]


def column(connection: Connection, query: str, *parameters: object) -> list[Any]:
    return [row[0] for row in rows(connection, query, *parameters)]


def post(connection: Connection, number: object, headers: str | None = None, **more: object) -> str:
    """Post a message `n => number` to queue q (or `queue=`)."""
    queue = more.pop("queue", "q")
    named = "".join(f", {name} => %({name})s" for name in more)
    query = f"select mbus.post_{queue}(hstore('n', %(n)s), %(headers)s::hstore{named})"
    found = connection.execute(
        query.encode(), {"n": str(number), "headers": headers, **more}
    ).fetchone()
    assert found is not None
    return found[0]


def post_many(connection: Connection, count: int, queue: str = "q") -> list[str]:
    return one(
        connection,
        f"select mbus.postn_{queue}(array(select hstore('n', n::text)"
        " from generate_series(1, %s::integer) n order by n))",
        count,
    )


def take(connection: Connection, amount: int = 100, whose: str = "q_by_default") -> list[str]:
    """Consume up to so many messages and return their `n`."""
    return column(connection, f"select data->'n' from mbus.consumen_{whose}(%s::integer)", amount)


def lease(
    connection: Connection, amount: int = 1, whose: str = "q_by_default", ttl: str = "30 seconds"
) -> list[tuple[str, str, int, int]]:
    """Lease and return n, iid, token and attempt."""
    return rows(
        connection,
        f"select data->'n', iid, token, attempt from mbus.lease_{whose}(%s::integer, %s::interval)",
        amount,
        ttl,
    )


def ack(connection: Connection, iid: str, token: int) -> None:
    connection.execute("select mbus.ack(%s, %s)", (iid, token))


def nack(connection: Connection, iid: str, token: int, **more: object) -> str:
    named = "".join(f", {name} => %({name})s" for name in more)
    query = f"select mbus.nack(%(iid)s, %(token)s{named})"
    found = connection.execute(query.encode(), {"iid": iid, "token": token, **more}).fetchone()
    assert found is not None
    return found[0]


def maintain(connection: Connection, queue: str | None = "q") -> dict[str, dict[str, int]]:
    """Run maintenance and return what it did, by queue."""
    with connection.cursor() as cursor:
        cursor.execute("select * from mbus.maintain(%s)", (queue,))
        names = [entry.name for entry in cursor.description or []]
        return {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in cursor}


def status(connection: Connection, what: str, queue: str = "q", consumer: str = "default") -> Any:
    return one(
        connection,
        f"select {what} from mbus.status where queue = %s and consumer = %s",
        queue,
        consumer,
    )


def shift_clock(connection: Connection, by: timedelta) -> None:
    """Move the bus's time for this transaction, and let nobody have maintained since."""
    body = f"select pg_catalog.clock_timestamp() + interval '{by.total_seconds():f} s'"
    connection.execute(
        sql.SQL(
            "create or replace function mbus.now() returns timestamptz"
            " language sql volatile parallel safe as {}"
        ).format(sql.Literal(body))
    )
    nobody_maintains(connection)


def stop_clock(connection: Connection, at: datetime) -> None:
    """Stop the bus's time for this transaction."""
    connection.execute(
        sql.SQL(
            "create or replace function mbus.now() returns timestamptz"
            " language sql volatile parallel safe as {}"
        ).format(sql.Literal(f"select timestamptz '{at.isoformat()}'"))
    )


def nobody_maintains(connection: Connection) -> None:
    connection.execute("select setval('mbus.attended', 0)")


@contextmanager
def refused(connection: Connection, code: str) -> Iterator[None]:
    """Expect this SQLSTATE, with a hint for the reader, and leave the transaction usable."""
    with pytest.raises(psycopg.Error) as caught, connection.transaction():
        yield
    assert caught.value.sqlstate == code, caught.value
    if code.startswith("MB"):
        assert caught.value.diag.message_hint
