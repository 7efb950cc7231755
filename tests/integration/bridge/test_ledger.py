"""The ledger: what comes again is dropped, what is settled is merged, what is old is forgotten."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import Connection

from postroad.bridge import DatabaseBridge
from postroad.testing import wait_until, wait_until_async, wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.integration.bridge.conftest import Databases, queue, run, taken

SOURCE = "erp@abc123"


def open_inlet(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('orders', payload => 'text')")
    connection.execute("select bridge.open_inlet('in', %s, 'orders')", (SOURCE,))


def receive(
    connection: Connection, batch: int | None, numbers: range | list[int]
) -> tuple[int, int]:
    """Let messages arrive whose data is their number; return how many were posted and dropped."""
    ids = [f"orders.{number}@abc123/erp" for number in numbers]
    nothing: list[Any] = [None] * len(ids)
    row = connection.execute(
        "select posted, dropped from bridge.receive('in', %s, %s, %s, %s, %s, %s::text[],"
        " %s::timestamptz[], %s::timestamptz[])",
        (
            SOURCE,
            batch,
            ids,
            [str(number) for number in numbers],
            ["seenby=>{erp}"] * len(ids),
            nothing,
            nothing,
            nothing,
        ),
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def ledger(connection: Connection) -> list[Any]:
    return connection.execute(
        "select numbers::text, batch, is_pinned from bridge.ledger order by id"
    ).fetchall()


@pytest.mark.both_versions
def test_a_batch_is_one_row_and_comes_once(connection: Connection) -> None:
    open_inlet(connection)
    assert receive(connection, 1, range(1, 1001)) == (1000, 0)
    assert receive(connection, 1, range(1, 1001)) == (0, 1000)
    # After a rollback at the source the next batch may be cut differently.
    assert receive(connection, 2, range(500, 1501)) == (500, 501)
    assert ledger(connection) == [("{[1,1001)}", 1, False), ("{[1001,1501)}", 2, False)]
    posted = connection.execute(
        "select data::integer from mbus.consumen_orders_by_default(5000)"
    ).fetchall()
    assert [number for (number,) in posted] == list(range(1, 1501))


def test_the_same_message_twice_in_a_batch_is_posted_once(connection: Connection) -> None:
    open_inlet(connection)
    assert receive(connection, None, [7, 8, 7, 9, 8]) == (3, 2)
    assert receive(connection, None, [9, 10]) == (1, 1)


@pytest.mark.both_versions
def test_what_is_settled_is_merged_and_still_known(connection: Connection) -> None:
    open_inlet(connection)
    for batch in range(1, 31):
        receive(connection, batch, range(batch * 10, batch * 10 + 10))
    connection.execute("select bridge.settle('in', %s, %s, '{}')", (SOURCE, list(range(1, 31))))
    assert ledger(connection) == [("{[10,310)}", None, False)]
    assert receive(connection, 31, range(300, 320)) == (10, 10)


@pytest.mark.both_versions
def test_what_is_old_is_forgotten_unless_it_may_come_again(connection: Connection) -> None:
    open_inlet(connection)
    receive(connection, 1, range(1, 11))
    receive(connection, 2, range(11, 21))
    receive(connection, 3, range(21, 31))
    connection.execute("update bridge.ledger set seen_at = seen_at - interval '2 days'")
    # The source has committed the first, rolled the second back, and is not sure of the third.
    connection.execute("select bridge.settle('in', %s, '{1}', '{2}')", (SOURCE,))
    assert ledger(connection) == [("{[11,21)}", 2, True), ("{[21,31)}", 3, False)]
    assert receive(connection, 4, range(11, 31)) == (0, 20)


def test_sparse_numbers_stay_one_row_per_batch(connection: Connection) -> None:
    open_inlet(connection)
    assert receive(connection, 1, list(range(0, 2000, 2))) == (1000, 0)
    assert receive(connection, 2, list(range(1, 2000, 2))) == (1000, 0)
    assert len(ledger(connection)) == 2
    connection.execute("select bridge.settle('in', %s, '{1,2}', '{}')", (SOURCE,))
    assert ledger(connection) == [("{[0,2000)}", None, False)]


@pytest.mark.both_versions
def test_foreign_ids_are_kept_in_two_tables_that_turn(connection: Connection) -> None:
    open_inlet(connection)

    def arrive(message_id: str | None) -> int:
        row = connection.execute(
            "select posted from bridge.receive('in', %s, null, array[%s]::text[], array['x'],"
            " array['']::text[], array[null]::text[], array[null]::timestamptz[],"
            " array[null]::timestamptz[])",
            (SOURCE, message_id),
        ).fetchone()
        assert row is not None
        return int(row[0])

    def turn() -> None:
        connection.execute("select setval('bridge.turned_at', 0)")
        connection.execute("select bridge.settle('in', %s, '{}', '{}')", (SOURCE,))

    assert (arrive("mine"), arrive("mine")) == (1, 0)
    assert (arrive(None), arrive(None)) == (1, 1)
    turn()
    # A number of nextval is logged ahead: a promoted standby might read the other table.
    assert connection.execute("select log_cnt from bridge.turns").fetchone() == (0,)
    assert arrive("mine") == 0
    turn()
    assert arrive("mine") == 1


def test_an_id_that_comes_twice_while_the_tables_turn_is_posted_once(
    database: str, connect: Connect, in_thread: InThread
) -> None:
    first, turning, second = connect(database), connect(database), connect(database)
    observer = connect(database, autocommit=True)

    def arrive(connection: Connection, message_id: str) -> int:
        row = connection.execute(
            "select posted from bridge.receive('in', %s, null, array[%s], array['x'], array[''],"
            " array[null]::text[], array[null]::timestamptz[], array[null]::timestamptz[])",
            (SOURCE, message_id),
        ).fetchone()
        assert row is not None
        return int(row[0])

    open_inlet(first)
    first.execute("select setval('bridge.turned_at', 0)")
    first.commit()
    arrive(first, "another")
    turned = in_thread(turning.execute, "select bridge.settle('in', %s, '{}', '{}')", (SOURCE,))
    wait_until_blocked(observer, turning.info.backend_pid)
    # It has begun before the tables have turned, and goes on afterwards.
    posted = in_thread(arrive, second, "mine")
    wait_until_blocked(observer, second.info.backend_pid)
    first.commit()
    turned.result()
    turning.commit()
    assert posted.result() == 1
    again = in_thread(arrive, first, "mine")
    wait_until(
        lambda: (
            again.done()
            or observer.execute(
                "select from pg_locks where pid = %s and not granted", (first.info.backend_pid,)
            ).fetchone()
            is not None
        ),
        what="the same id waits or is there",
    )
    second.commit()
    assert again.result() == 0


@pytest.mark.chaos
@pytest.mark.parametrize("moment", ["delivered", "committed"])
async def test_a_source_lost_between_the_two_commits_changes_nothing(
    databases: Databases, moment: str
) -> None:
    a, b = databases(2)
    queue(a)
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    run(a, "select mbus.post_orders(hstore('n', g::text)) from generate_series(1, 250) g")

    def cut(*_: object) -> None:
        # Inside the bridge's own loop, so that nothing happens between its step and this one.
        bridge.signals.emit = emit  # type: ignore[method-assign]
        with psycopg.connect(a, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name like 'postroad bridge out%' and pid <> pg_backend_pid()"
            )

    emit = bridge.signals.emit
    bridge.signals.emit = lambda name, value=None: (  # type: ignore[method-assign]
        cut() if name == moment else emit(name, value)
    )
    async with bridge:

        async def all_there() -> bool:
            return bridge.delivered + bridge.dropped >= 250

        await wait_until_async(all_there, what="all crossed")
    numbers = [
        int(n) for (n,) in run(b, "select data -> 'n' from mbus.consumen_orders_by_default(999)")
    ]
    assert numbers == list(range(1, 251))
    if moment == "delivered":
        assert bridge.dropped == 100, "the batch did not come again: the test did not test"
    assert taken(b) == []
