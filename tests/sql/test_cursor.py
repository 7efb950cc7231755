"""Consumers with a cursor: a batch is taken from the log, and a position moves past it."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import Connection

from postroad.testing import wait_until
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, one, post, post_many, rows, take

WHOSE = "q_by_reader"
SLOTS = 4
SMALL = (
    "create or replace function mbus._slot_bytes() returns bigint language sql immutable return 1"
)


@pytest.fixture
def cursor(database: str, connect: Connect) -> str:
    """Give the DSN of a database with a queue that has only a consumer with a cursor."""
    with connect(database) as connection:
        connection.execute(f"select mbus.create_queue('q', ncons => {SLOTS})")
        connection.execute("select mbus.create_consumer('q', 'reader', contract => 'cursor')")
        connection.execute("select mbus.drop_consumer('q', 'default')")
    return database


def figures(connection: Connection) -> tuple[int, int, int]:
    [found] = rows(
        connection, "select ready, delayed, dmq from mbus.status where consumer = 'reader'"
    )
    return found


def maintain(connection: Connection, times: int = 1) -> None:
    for _ in range(times):
        connection.execute("select mbus.maintain('q')")
        connection.commit()


def test_batches_are_taken_in_order_and_the_commit_moves_the_cursor(
    cursor: str, connect: Connect
) -> None:
    with connect(cursor) as poster, connect(cursor) as reader:
        post_many(poster, 25)
        poster.commit()
        assert figures(poster) == (25, 0, 0)
        assert take(reader, 10, WHOSE) == [str(n) for n in range(1, 11)]
        reader.commit()
        assert figures(poster) == (15, 0, 0)
        poster.commit()
        assert take(reader, 10, WHOSE) == [str(n) for n in range(11, 21)]
        reader.rollback()
        assert take(reader, 100, WHOSE) == [str(n) for n in range(11, 26)]
        reader.commit()
        assert take(reader, 100, WHOSE) == []
        assert figures(poster) == (0, 0, 0)


def test_no_row_of_a_message_is_locked_or_deleted(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection:
        post_many(connection, 300)
        connection.commit()
        while take(connection, 100, WHOSE):
            connection.commit()
        assert rows(connection, 'select xmax::text, count(*) from mbus."ql$q$0" group by 1') == [
            ("0", 300)
        ]
        # One row per batch.
        assert one(connection, 'select count(*) from mbus."qc$q$reader$0"') == 3


def test_a_message_that_is_committed_late_is_not_passed(cursor: str, connect: Connect) -> None:
    with connect(cursor) as early, connect(cursor) as late, connect(cursor) as reader:
        post(late, "late")
        post(early, "early")
        early.commit()
        # The message of the other session has a smaller id and may still be committed.
        assert take(reader, 10, WHOSE) == []
        reader.commit()
        late.commit()
        assert take(reader, 10, WHOSE) == ["late", "early"]


def test_a_message_that_is_committed_between_two_batches_is_not_passed(
    cursor: str, connect: Connect
) -> None:
    with connect(cursor) as early, connect(cursor) as late, connect(cursor) as reader:
        post_many(early, 2)
        early.commit()
        post(late, "late")
        post(early, "after")
        early.commit()
        assert take(reader, 10, WHOSE) == []  # no mark was made before the open transaction
        reader.commit()
        late.rollback()
        assert take(reader, 10, WHOSE) == ["1", "2", "after"]
        reader.commit()
        post(late, "late")
        early.execute("select mbus.postn_q(array[hstore('n', 'x')])")
        assert take(reader, 10, WHOSE) == []
        reader.commit()
        late.commit()
        # The mark of the last take is not settled: one of its transactions is open.
        assert take(reader, 10, WHOSE) == []
        reader.commit()
        early.commit()
        assert take(reader, 10, WHOSE) == ["late", "x"]


def test_posts_that_never_pause_do_not_keep_the_cursor_back(cursor: str, connect: Connect) -> None:
    with connect(cursor) as one_poster, connect(cursor) as other, connect(cursor) as reader:
        taken: list[str] = []
        post(one_poster, 0)
        for number in range(1, 9):
            posting, committing = (other, one_poster) if number % 2 else (one_poster, other)
            post(posting, number)
            committing.commit()
            taken += take(reader, 10, WHOSE)
            reader.commit()
        assert taken == [str(n) for n in range(8)]


def test_maintenance_settles_for_sessions_that_take_once(cursor: str, connect: Connect) -> None:
    with connect(cursor) as one_poster, connect(cursor) as other, connect(cursor) as maintainer:
        post(one_poster, 1)
        maintain(maintainer)
        post(other, 2)
        one_poster.commit()
        maintain(maintainer)
        with connect(cursor) as reader:
            assert take(reader, 10, WHOSE) == ["1"]


def test_a_post_by_maintenance_is_not_passed(cursor: str, connect: Connect) -> None:
    with connect(cursor) as poster, connect(cursor) as maintainer, connect(cursor) as reader:
        post(poster, 1)
        poster.execute("select mbus.schedule('s', '10 minutes', 'q', 'n=>scheduled')")
        poster.execute("update mbus.schedule set next_at = mbus.now()")
        poster.commit()
        maintainer.execute("select mbus.maintain()")
        # Its transaction is open, and what it has published of the queue is not rolled back.
        taken = take(reader, 10, WHOSE)
        reader.commit()
        maintainer.commit()
        assert taken + take(reader, 10, WHOSE) == ["1", "scheduled"]


def test_a_transaction_does_not_take_what_it_has_posted(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection, connect(cursor) as other:
        post(connection, 1)
        assert take(connection, 10, WHOSE) == []
        assert take(other, 10, WHOSE) == []
        connection.rollback()
        post(connection, 2)
        connection.commit()
        assert take(connection, 10, WHOSE) == ["2"]


def test_one_transaction_at_a_time_takes(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection, connect(cursor) as first, connect(cursor) as second:
        post_many(connection, 4)
        connection.commit()
        assert take(first, 2, WHOSE) == ["1", "2"]
        assert take(second, 2, WHOSE) == []
        second.commit()
        pid = first.info.backend_pid
        first.close()  # as a worker that is killed
        gone = "select not exists (select from pg_stat_activity where pid = %s)"
        # A transaction sees the sessions as they were when it first looked.
        connection.autocommit = True
        wait_until(lambda: one(connection, gone, pid), what="the server notices it")
        assert take(second, 4, WHOSE) == ["1", "2", "3", "4"]


def test_a_failed_message_is_given_back_and_does_not_stop_the_cursor(
    cursor: str, connect: Connect
) -> None:
    with connect(cursor) as connection:
        post_many(connection, 5)
        connection.commit()
        back = (
            "select mbus.give_back('reader', m, %s, 'failed', %s)"
            " from mbus.consumen_q_by_reader(3) m where m.data->'n' = %s"
        )
        assert column(connection, back, "0", False, "2") == ["ready"]
        connection.commit()
        assert figures(connection) == (3, 0, 0)
        found = rows(
            connection,
            "select data->'n', headers->'attempts' from mbus.consumen_q_by_reader(10)",
        )
        assert found == [("2", "1"), ("4", None), ("5", None)]
        connection.commit()
        post(connection, 6)
        connection.commit()
        assert column(connection, back, "1 hour", False, "6") == ["delayed"]
        assert figures(connection) == (0, 1, 0)


def test_a_message_is_rejected_after_a_rollback(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection:
        iids = post_many(connection, 5)
        connection.commit()
        take(connection, 5, WHOSE)
        connection.rollback()
        reject = "select mbus.reject('q', 'reader', %s, error => 'bad', park => true)"
        assert one(connection, reject, iids[2]) == "dmq"
        assert one(connection, reject, iids[2]) == "absent"
        connection.commit()
        assert figures(connection) == (4, 0, 1)
        assert take(connection, 10, WHOSE) == ["1", "2", "4", "5"]
        connection.commit()
        assert one(connection, reject, iids[4]) == "absent"
        connection.execute("select mbus.redrive('q', 'reader')")
        connection.commit()
        assert take(connection, 10, WHOSE) == ["3"]


def test_one_message_is_taken_by_its_iid(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection, connect(cursor) as other:
        iids = post_many(connection, 3)
        connection.commit()
        by_iid = "select data->'n' from mbus.take_from_q_by_reader(%s)"
        assert column(connection, by_iid, iids[1]) == ["2"]
        assert take(other, 10, WHOSE) == []
        connection.rollback()
        assert one(connection, "select mbus.peek_q(%s)", iids[1])
        assert column(connection, by_iid, iids[1]) == ["2"]
        assert column(connection, by_iid, iids[1]) == []
        assert not one(connection, "select mbus.peek_q(%s)", iids[1])
        connection.commit()
        assert column(connection, "select data->'n' from mbus.take_q(%s)", iids[0]) == ["1"]
        connection.commit()
        assert take(other, 10, WHOSE) == ["3"]


def test_taking_by_iid_waits_for_the_batch(
    cursor: str, connect: Connect, in_thread: InThread
) -> None:
    with connect(cursor) as connection, connect(cursor) as other:
        iids = post_many(connection, 3)
        connection.commit()
        take(connection, 2, WHOSE)
        found = in_thread(
            column, other, "select data->'n' from mbus.take_from_q_by_reader(%s)", iids[0]
        )
        with connect(cursor) as watcher:
            wait = (
                "select exists (select from pg_locks where not granted and locktype = 'advisory')"
            )
            wait_until(lambda: one(watcher, wait), what="it waits")
        connection.commit()
        assert found.result(30) == []


def test_expired_messages_are_passed(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection:
        for number in range(5):
            post(connection, number, expires="2000-01-01")
        post(connection, "alive")
        connection.commit()
        assert take(connection, 1, WHOSE) == ["alive"]
        connection.commit()
        assert figures(connection)[0] == 0


def test_priorities_and_delays_are_kept(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection:
        post(connection, "low", "priority=>low")
        post(connection, "normal")
        post(connection, "high", "priority=>high")
        post(connection, "later", delayed_until="2200-01-01")
        connection.commit()
        assert figures(connection) == (3, 1, 0)
        assert take(connection, 10, WHOSE) == ["high", "normal", "low"]
        connection.execute("update mbus.delayed set due_at = now()")
        connection.commit()
        maintain(connection)
        assert take(connection, 10, WHOSE) == ["later"]


def test_a_new_cursor_begins_after_what_was_posted(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection:
        post_many(connection, 3)
        connection.execute("select mbus.create_consumer('q', 'second', contract => 'cursor')")
        connection.execute("select mbus.create_consumer('q', 'third')")
        connection.commit()
        post(connection, "new")
        connection.commit()
        assert take(connection, 10, "q_by_second") == ["new"]
        assert take(connection, 10, "q_by_third") == ["new"]
        assert take(connection, 10, WHOSE) == ["1", "2", "3", "new"]


@pytest.mark.both_versions
def test_slots_are_reclaimed_behind_all_cursors(cursor: str, connect: Connect) -> None:
    size = (
        "select sum(pg_relation_size(oid)) from pg_class"
        " where relname like 'ql$q$%' and relkind = 'r'"
    )
    with connect(cursor) as connection, connect(cursor) as reader, connect(cursor) as holder:
        connection.execute(SMALL)
        connection.commit()
        holder.execute("begin isolation level repeatable read")
        holder.execute("select 1")
        taken: list[str] = []
        for number in range(1, 41):
            post(connection, number)
            connection.commit()
            maintain(connection, 2)
            if number % 3 == 0:
                taken += take(reader, 100, WHOSE)
                reader.commit()
        assert one(connection, """select pg_sequence_last_value('mbus."qs$q$head"')""") > 2 * SLOTS
        taken += take(reader, 100, WHOSE)
        reader.commit()
        assert taken == [str(n) for n in range(1, 41)]
        maintain(connection, 4)
        # All but the newest slot are empty.
        assert one(connection, size) <= 8192
        # What waits keeps its slot.
        post(connection, "waits")
        connection.commit()
        maintain(connection, 4)
        for number in range(20):
            post(connection, number)
            connection.commit()
            maintain(connection, 2)
        assert take(reader, 100, WHOSE) == ["waits", *map(str, range(20))]


def test_what_cannot_be_kept_is_refused(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection:
        connection.execute("select mbus.create_queue('grouped')")
        connection.execute("select mbus.post_grouped('n=>1', headers => 'group=>a')")
        iid = post(connection, 1)
        connection.commit()
        for call, parameters in (
            ("create_consumer('q', 'c', 'true', contract => 'cursor')", ()),
            ("create_consumer('q', 'c', contract => 'lines')", ()),
            ("create_consumer('q', 'c', contract => null)", ()),
            ("create_consumer('grouped', 'c', contract => 'cursor')", ()),
            ("post_q('n=>1', headers => 'group=>a')", ()),
            ("post_q('n=>1', headers => hstore('consume_after', %s))", (iid,)),
            ("lease_q_by_reader(1)", ()),
            ("create_view('q', 'reader')", ()),
        ):
            with pytest.raises(psycopg.DatabaseError) as caught:
                connection.execute(f"select mbus.{call}".encode(), parameters or None)
            assert caught.value.sqlstate == "MB012", call
            assert caught.value.diag.message_hint
            connection.rollback()


def test_operators_see_messages_ahead_of_the_cursor(cursor: str, connect: Connect) -> None:
    with connect(cursor) as connection:
        iids = post_many(connection, 6)
        connection.commit()
        take(connection, 2, WHOSE)
        connection.execute("select mbus.purge('q', 'reader', iid => %s)", (iids[4],))
        connection.commit()
        shown = "select iid from mbus.browse('q', 'reader', is_descending => %s) where is_match"
        ahead = [iids[2], iids[3], iids[5]]
        assert column(connection, shown, False) == ahead
        assert column(connection, shown, True) == ahead[::-1]
        assert (
            one(
                connection,
                "select count(*) from mbus.browse('q', 'reader', 'retained') where is_match",
            )
            == 3
        )
        assert one(connection, "select oldest_age is not null from mbus.status")
        assert one(connection, "select mbus.purge('q', 'reader')") == 3
        connection.commit()
        assert figures(connection) == (0, 0, 0)
