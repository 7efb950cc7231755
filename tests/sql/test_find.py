"""Messages are found by business key, trace and correlation, wherever they are stored."""

from __future__ import annotations

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock
from tests.fixtures.postgres import Connect
from tests.sql.calls import column, lease, maintain, nack, one, rows, take

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = f"traceparent=>00-{TRACE}-00f067aa0ba902b7-01, correlation=>c7"


def numbers(session: Connection, *keys: str) -> list[str]:
    """Return the numbers of the messages that are found, the latest last."""
    found = column(session, "select iid from mbus.find(%s)", list(keys))
    return [iid.partition("@")[0] for iid in reversed(found)]


@pytest.mark.both_versions
@pytest.mark.parametrize(
    ("payload", "data"),
    [("hstore", "order_id=>4711"), ("jsonb", '{"order_id": 4711}'), ("text", "")],
)
def test_messages_are_found_in_all_places(bus: Connection, payload: str, data: str) -> None:
    bus.execute(f"select mbus.create_queue('o', payload => '{payload}')".encode())
    bus.execute("select mbus.alter_queue('o', track => 'order_id')")

    def post(headers: str | None = None, **more: object) -> None:
        named = "".join(f", {name} => %s" for name in more)
        properties = "order_id=>4711" if payload == "text" else None
        bus.execute(
            f"select mbus.post_o(%s::{payload}, %s::hstore, %s::hstore{named})".encode(),
            (data, headers, properties, *more.values()),
        )

    post()
    post(HEADERS)
    post(delayed_until=one(bus, "select mbus.now() + interval '1 hour'"))
    assert numbers(bus, "4711") == ["o.1", "o.2", "o.3"]
    assert numbers(bus, TRACE) == numbers(bus, "c7") == ["o.2"]
    assert numbers(bus, "4711", "c7") == ["o.1", "o.2", "o.3"]
    assert numbers(bus, "471", "") == []
    assert one(bus, "select links from mbus.find(array['c7'])") == ["4711", TRACE, "c7", None]
    [(iid, token)] = rows(bus, "select iid, token from mbus.lease_o_by_default(1, '1 hour')")
    assert numbers(bus, "4711") == ["o.1", "o.2", "o.3"]
    nack(bus, iid, token, error="no", park=True)
    assert numbers(bus, "4711") == ["o.1", "o.2", "o.3"]
    bus.execute("select mbus.alter_queue('o', track => '')")
    assert numbers(bus, "4711") == []
    indexes = (
        "select count(*) from pg_indexes where schemaname = 'mbus' and indexdef ~ 'traceparent'"
    )
    assert one(bus, indexes) == 0


def test_retained_messages_are_found_by_index(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    session = connect(live, autocommit=True)
    session.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 8192"
    )
    session.execute("select mbus.alter_queue('q', retain => '7 days')")
    for part in range(6):
        if part == 3:
            # The closed segments get their indexes, too.
            session.execute("select mbus.alter_queue('q', track => 'n')")
        session.execute(
            "select mbus.postn_q(array(select hstore(array['n', 'x'], array[n::text,"
            " repeat('x', 1000)]) from generate_series(%s::int, %s) n))",
            (part * 40, part * 40 + 39),
        )
        while take(session):
            pass
        for _ in range(3):
            maintain(session)
    assert one(session, "select count(*) from mbus.retained") > 3
    for key in (7, 130, 239):
        assert numbers(session, str(key)) == [f"q.{key + 1}"]
    missing = column(
        session,
        "select relname from pg_class c where relname ~ '^q[lr][$]' and relkind = 'r' and 3 <>"
        " (select count(*) from pg_index i where i.indrelid = c.oid and indexprs is not null)",
    )
    assert missing == []


def test_a_retry_is_found_once(bus: Connection) -> None:
    bus.execute("select mbus.alter_queue('q', retain => '1 day', track => 'n')")
    bus.execute("select mbus.post_q('n=>4711')")
    [(_, iid, token, _)] = lease(bus)
    nack(bus, iid, token, delay="0")
    assert numbers(bus, "4711") == ["q.1"]


@pytest.mark.both_versions
def test_a_search_reads_only_what_it_finds(bus: Connection) -> None:
    bus.execute("select mbus.alter_queue('q', retain => '1 day', track => 'n')")
    bus.execute(
        "select mbus.postn_q(array(select hstore('n', n::text) from generate_series(1, 60000) n))"
    )
    # The statistics of no queue are usual; with them, reading all by id looks cheap.
    for statement in ("select", "analyze"):
        bus.execute(statement.encode())
        read = "select sum(idx_tup_fetch) from pg_stat_xact_user_tables where relname like 'ql$%'"
        before = one(bus, read)
        assert numbers(bus, "777") == ["q.777"]
        assert one(bus, read) - before < 100
