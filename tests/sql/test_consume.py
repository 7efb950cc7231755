"""Consuming: in order, in the caller's transaction, to one worker."""

from __future__ import annotations

import pytest
from psycopg import Connection

from postroad.testing import wait_until
from tests.fixtures.postgres import Connect
from tests.sql.calls import one, post, post_many, refused, rows, take

pytestmark = pytest.mark.both_versions


def test_an_empty_queue_gives_an_empty_set(bus: Connection) -> None:
    assert rows(bus, "select * from mbus.consume('q')") == []
    assert rows(bus, "select * from mbus.consume_q_by_default()") == []
    assert rows(bus, "select * from mbus.consumen_q_by_default(5)") == []


def test_consume_takes_one_and_consumen_as_many_as_asked(bus: Connection) -> None:
    post_many(bus, 10)
    assert one(bus, "select data->'n' from mbus.consume('q')") == "1"
    assert one(bus, "select data->'n' from mbus.consume('q', 'default')") == "2"
    assert one(bus, "select data->'n' from mbus.consume_q_by_default()") == "3"
    assert take(bus, 4) == ["4", "5", "6", "7"]
    assert take(bus, 0) == []
    assert take(bus, 100) == ["8", "9", "10"]


def test_messages_of_interleaved_producers_come_in_order_of_posting(
    live: str, connect: Connect
) -> None:
    producers = [connect(live, autocommit=True) for _ in range(3)]
    for number in range(30):
        post(producers[number % 3], number)
    assert take(connect(live), 30) == [str(n) for n in range(30)]


def test_a_message_that_commits_late_is_delivered_late_but_delivered(
    live: str, connect: Connect
) -> None:
    slow, fast, consumer = connect(live), connect(live), connect(live, autocommit=True)
    post(slow, "slow")
    post(fast, "fast")
    fast.commit()
    assert take(consumer) == ["fast"]
    slow.commit()
    assert take(consumer) == ["slow"]


def test_commit_consumes(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    post(first, 1)
    first.commit()
    assert take(first) == ["1"]
    first.commit()
    assert take(second) == []


def test_rollback_gives_the_message_back_at_once_and_in_its_place(
    live: str, connect: Connect
) -> None:
    first, second = connect(live), connect(live)
    post_many(first, 3)
    first.commit()
    assert take(first, 2) == ["1", "2"]
    assert take(second, 1) == ["3"]
    second.rollback()
    first.rollback()
    assert take(second) == ["1", "2", "3"]


def test_a_savepoint_gives_the_message_back_as_well(bus: Connection) -> None:
    post_many(bus, 2)
    bus.execute("savepoint before")
    assert take(bus, 1) == ["1"]
    bus.execute("rollback to before")
    assert take(bus) == ["1", "2"]


def test_a_lost_connection_gives_the_message_back(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live, autocommit=True)
    post(first, 1)
    first.commit()
    assert take(first) == ["1"]
    one(second, "select pg_terminate_backend(%s)", first.info.backend_pid)
    assert wait_until(lambda: take(second), what="the message comes back") == ["1"]


def test_competing_workers_share_and_never_wait(live: str, connect: Connect) -> None:
    first, second, third = connect(live), connect(live), connect(live)
    post_many(first, 4)
    first.commit()
    third.execute("set lock_timeout = '1ms'")
    assert take(first, 2) == ["1", "2"]
    assert take(third, 2) == ["3", "4"]
    assert take(second) == []


def test_the_headers_tell_where_the_message_has_been(bus: Connection) -> None:
    post(bus, 1)
    database = bus.info.dbname
    assert rows(
        bus,
        "select headers->'seenby', (headers->'seenby')::text[], headers->'source_db',"
        " headers->'destination', (headers->'enqueue_time')::timestamptz = added,"
        " headers ? 'attempts'"
        " from mbus.consume('q')",
    ) == [(f"{{{database}}}", [database], database, "q", True, False)]


def test_a_forwarded_message_keeps_its_origin_and_gets_a_new_destination(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('further')")
    headers = (
        'seenby=>"{erp}", source_db=>erp, enqueue_time=>"2020-01-01 00:00:00+00",'
        " destination=>elsewhere, attempts=>7"
    )
    post(bus, 1, headers, queue="further")
    assert rows(
        bus,
        "select (headers->'seenby')::text[], headers->'source_db', headers->'destination',"
        " (headers->'enqueue_time')::timestamptz, headers->'attempts' from mbus.consume('further')",
    ) == rows(
        bus,
        "select array['erp', current_database()], 'erp', 'further',"
        " '2020-01-01 00:00:00+00'::timestamptz, null",
    )


def test_ids_are_unique(bus: Connection) -> None:
    post_many(bus, 10)
    found = rows(bus, "select count(distinct id), min(id) > 0 from mbus.consumen_q_by_default(10)")
    assert found == [(10, True)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_taking_needs_read_committed(live: str, connect: Connect, level: str) -> None:
    connection = connect(live)
    iid = post(connection, 1)
    connection.execute("select set_config('default_transaction_isolation', %s, false)", (level,))
    connection.commit()
    for call in (
        "consume('q')",
        "consume_q_by_default()",
        "consumen_q_by_default(1)",
        "lease_q_by_default()",
        "take(%(iid)s)",
        "take_q(%(iid)s)",
        "take_from_q_by_default(%(iid)s)",
        "reject('q', 'default', %(iid)s)",
        "maintain()",
    ):
        with refused(connection, "MB014"):
            connection.execute(f"select mbus.{call}".encode(), {"iid": iid})
        connection.rollback()
    assert one(connection, "select mbus.peek_q(%s)", iid)


def test_the_refusal_names_the_isolation_that_is_needed(live: str, connect: Connect) -> None:
    connection = connect(live)
    connection.execute("set default_transaction_isolation = 'repeatable read'")
    connection.commit()
    with pytest.raises(
        Exception, match="needs READ COMMITTED, this transaction is REPEATABLE READ"
    ):
        take(connection)
    connection.rollback()
    post(connection, 1)
    connection.commit()
    connection.execute("set default_transaction_isolation = 'read committed'")
    connection.commit()
    assert take(connection) == ["1"]
