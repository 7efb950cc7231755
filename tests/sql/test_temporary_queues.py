"""Temporary queues: rows of a session, gone when it is, without a trace in the catalogue."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock, wait_until
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, one, refused, rows, shift_clock


def make(connection: Connection, payload: str = "hstore") -> str:
    return one(connection, "select mbus.create_temporary_queue(%s::regtype)", payload)


def post(connection: Connection, name: str, number: object) -> str:
    return one(connection, "select mbus.post(%s, hstore('n', %s))", name, str(number))


def take(connection: Connection, name: str, amount: int = 100, wait: str = "0") -> list[str]:
    return column(
        connection,
        "select data->'n' from mbus.consume_temporary(%s, %s::integer, %s::interval)",
        name,
        amount,
        wait,
    )


def until_gone(connection: Connection, pid: int) -> None:
    wait_until(
        lambda: one(connection, "select mbus._is_session_gone(%s)", pid), what="the session's end"
    )


def until_sleeping(connection: Connection, pid: int) -> None:
    wait_until(
        lambda: (
            rows(
                connection,
                "select from pg_stat_activity where pid = %s and wait_event = 'PgSleep'",
                pid,
            )
            != []
        ),
        what="the consumer's pause",
    )


def test_messages_come_in_order_of_posting_with_their_headers(bus: Connection) -> None:
    name = make(bus)
    iids = [post(bus, name, number) for number in range(3)]
    ((iid, headers, data, received),) = rows(
        bus, "select iid, headers::text, data::text, received from mbus.consume(%s)", name
    )
    assert iid == iids[0]
    assert iid.startswith(name + ".")
    assert f'"destination"=>"{name}"' in headers
    assert '"enqueue_time"' in headers
    assert '"source_db"' in headers
    assert (data, received) == ('"n"=>"0"', None)
    assert take(bus, name, 1) == ["1"]
    assert take(bus, name) == ["2"]
    assert take(bus, name) == []


@pytest.mark.parametrize(
    ("payload", "text"), [("jsonb", '{"a": 1}'), ("text", "abc"), ("bytea", "\\x61")]
)
def test_other_payloads_have_their_own_function(bus: Connection, payload: str, text: str) -> None:
    name = make(bus, payload)
    bus.execute("select mbus.post(%s, %s::text)", (name, text))
    bus.execute(f"select mbus.post(%s, %s::{payload})".encode(), (name, text))
    got = column(bus, f"select data::text from mbus.consume_temporary_{payload}(%s, 9)", name)
    assert got == [text, text]
    with refused(bus, "MB019"):
        take(bus, name)
    with refused(bus, "MB019"):
        rows(bus, "select * from mbus.consume(%s)", name)


def test_bad_input_is_refused(bus: Connection) -> None:
    name = make(bus)
    for statement, code in [
        ("select mbus.create_temporary_queue('integer')", "MB011"),
        ("select mbus.create_temporary_queue(null)", "MB011"),
        (f"select mbus.post('{name}', '{{}}'::jsonb)", "MB011"),
        (f"select mbus.post('{name}', 'no hstore'::text)", "MB011"),
        (f"select mbus.post('{name}', 'a=>1', iid => '{name}.1@x')", "MB009"),
        (
            f"select mbus.post('{name}', 'a=>1', delayed_until => '2100-01-02',"
            " expires => '2100-01-01')",
            "MB012",
        ),
        ("select mbus.post('temp.0123456789abcdef', 'a=>1')", "MB001"),
        ("select * from mbus.consume('temp.0123456789abcdef')", "MB001"),
        (f"select * from mbus.consume_temporary('{name}', -1)", "MB012"),
        (f"select * from mbus.consume_temporary('{name}', null)", "MB012"),
        (f"select * from mbus.consume_temporary('{name}', 1, '-1 second')", "MB012"),
    ]:
        with refused(bus, code):
            bus.execute(statement.encode())
    assert take(bus, name) == []


def test_a_queue_called_temp_is_an_ordinary_one(connection: Connection) -> None:
    for name in ("temp", "temporary", "tempq"):
        connection.execute("select mbus.create_queue(%s)", (name,))
        connection.execute("select mbus.post(%s, 'n=>1')", (name,))
        assert one(connection, "select data->'n' from mbus.consume(%s)", name) == "1"


def test_delay_and_expiry_are_kept(bus: Connection) -> None:
    name = make(bus)
    bus.execute(
        "select mbus.post(%s, 'n=>late', delayed_until => mbus.now() + '1 hour'),"
        " mbus.post(%s, 'n=>short', expires => mbus.now() + '1 hour')",
        (name, name),
    )
    post(bus, name, "plain")
    shift_clock(bus, timedelta(hours=2))
    ((n, has_delay),) = rows(
        bus,
        "select data->'n', delayed_until is not null from mbus.consume_temporary(%s)",
        name,
    )
    assert (n, has_delay) == ("late", True)
    assert take(bus, name) == ["plain"]


def test_only_its_own_session_takes_and_everybody_posts(live: str, connect: Connect) -> None:
    owner, other = (connect(live, autocommit=True) for _ in range(2))
    name = make(owner)
    post(other, name, 1)
    with refused(other, "MB013"):
        take(other, name)
    # Neither does a forged name of the session help.
    session = one(owner, "select session::text from mbus.temporary_queue")
    other.execute("select set_config('mbus.session', %s, false)", (session,))
    with refused(other, "MB013"):
        take(other, name)
    assert take(owner, name) == ["1"]


def test_the_transaction_decides(live: str, connect: Connect) -> None:
    owner, other = connect(live), connect(live)
    name = make(owner)
    with refused(other, "MB001"):
        post(other, name, 1)
    owner.commit()
    post(other, name, 1)
    assert take(owner, name) == []
    other.commit()
    assert take(owner, name) == ["1"]
    owner.rollback()
    assert take(owner, name) == ["1"]


@pytest.mark.both_versions
def test_a_queue_is_gone_with_its_session(live: str, connect: Connect) -> None:
    owner, other = (connect(live, autocommit=True) for _ in range(2))
    name, kept = make(owner), make(other)
    pid = owner.info.backend_pid
    post(other, name, 1)
    post(other, kept, 1)
    owner.close()
    until_gone(other, pid)
    with refused(other, "MB001"):
        post(other, name, 2)
    assert one(other, "select mbus.clear_tempq()") == 1
    assert column(other, "select name from mbus.temporary_queue") == [kept]
    assert column(other, "select destination from mbus.tempq_0") == [kept]
    assert one(other, "select mbus.clear_tempq()") == 0


def test_maintenance_clears_as_well(live: str, connect: Connect) -> None:
    owner, other = (connect(live, autocommit=True) for _ in range(2))
    make(owner)
    pid = owner.info.backend_pid
    other.execute("select pg_terminate_backend(%s)", (pid,))
    until_gone(other, pid)
    assert one(other, "select mbus._maintain_temporary()") == 1
    assert column(other, "select name from mbus.temporary_queue") == []


def test_a_new_session_with_an_old_pid_inherits_nothing(bus: Connection) -> None:
    name = make(bus)
    # What is left is a queue of this pid, made by a session of another name.
    bus.execute("update mbus.temporary_queue set session = gen_random_uuid()")
    bus.execute("select set_config('mbus.session', '', false)")
    mine = make(bus)
    assert column(bus, "select name from mbus.temporary_queue") == [mine]
    with refused(bus, "MB001"):
        take(bus, name)


def test_a_session_that_was_discarded_has_no_queues(live: str, connect: Connect) -> None:
    owner = connect(live, autocommit=True)
    name = make(owner)
    owner.execute("discard all")
    with refused(owner, "MB013"):
        take(owner, name)
    assert make(owner) != name
    assert one(owner, "select count(*) from mbus.temporary_queue") == 1


def test_consuming_waits_for_a_message(live: str, connect: Connect, in_thread: InThread) -> None:
    owner, other = (connect(live, autocommit=True) for _ in range(2))
    name = make(owner)
    waiting = in_thread(take, owner, name, 10, "1 minute")
    until_sleeping(other, owner.info.backend_pid)
    post(other, name, 1)
    assert waiting.result(timeout=10) == ["1"]
    assert take(owner, name, 1, "10 milliseconds") == []


def test_waiting_can_be_cancelled(live: str, connect: Connect, in_thread: InThread) -> None:
    owner, other = (connect(live, autocommit=True) for _ in range(2))
    name = make(owner)
    waiting = in_thread(take, owner, name, 10, "1 hour")
    until_sleeping(other, owner.info.backend_pid)
    owner.cancel()
    with pytest.raises(psycopg.errors.QueryCanceled):
        waiting.result(timeout=10)


def test_taking_needs_read_committed(live: str, connect: Connect) -> None:
    owner = connect(live)
    name = make(owner)
    owner.commit()
    owner.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with refused(owner, "MB014"):
        take(owner, name)


def test_the_catalogue_does_not_grow(live: str, connect: Connect) -> None:
    owner = connect(live, autocommit=True)
    count = (
        "select (select count(*) from pg_class), (select count(*) from pg_attribute),"
        " (select count(*) from pg_proc)"
    )
    make(owner)
    before = rows(owner, count)
    owner.execute("select mbus.create_temporary_queue() from generate_series(1, 2000)")
    owner.execute("select mbus.post(name, 'n=>1') from mbus.temporary_queue")
    assert rows(owner, count) == before
    assert one(owner, "select count(*) from mbus.temporary_queue") == 2001


def lives(connection: Connection) -> list[int]:
    return [
        one(connection, f"select pg_sequence_last_value('mbus.tempq_life_{n}')") for n in range(3)
    ]


def size(connection: Connection) -> int:
    return one(
        connection,
        "select sum(pg_relation_size(format('mbus.tempq_%s', n)::regclass))"
        "::bigint from generate_series(0, 2) n",
    )


def test_the_ring_turns_and_is_truncated(live: str, connect: Connect, clock: DatabaseClock) -> None:
    owner, maintainer = (connect(live, autocommit=True) for _ in range(2))
    name, expected = make(owner), []
    for turn in range(12):
        post(owner, name, turn)
        expected.append(str(turn))
        clock.advance(timedelta(minutes=2))
        maintainer.execute("select mbus._maintain_temporary()")
        if turn % 3 == 2:
            assert take(owner, name) == expected
            expected = []
    for _ in range(4):
        clock.advance(timedelta(minutes=2))
        maintainer.execute("select mbus._maintain_temporary()")
    assert max(lives(owner)) > 3
    assert size(owner) == 0


def test_what_lies_long_is_moved_on_in_order(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    owner, slow, maintainer = (connect(live, autocommit=True) for _ in range(3))
    busy, patient = make(owner), make(slow)
    for turn in range(20):
        post(owner, patient, turn)
        post(owner, busy, turn)
        clock.advance(timedelta(minutes=2))
        maintainer.execute("select mbus._maintain_temporary()")
        assert take(owner, busy) == [str(turn)]
    assert max(lives(owner)) > 6
    assert take(slow, patient) == [str(turn) for turn in range(20)]


def test_a_held_snapshot_does_not_let_the_ring_grow(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    owner, maintainer, holder = (connect(live, autocommit=True) for _ in range(3))
    name = make(owner)
    holder.execute("begin isolation level repeatable read")
    holder.execute("select 1 from pg_class limit 1")
    for _ in range(10):
        owner.execute(
            "select mbus.post(%s, hstore('n', n::text)) from generate_series(1, 200) n", (name,)
        )
        assert len(take(owner, name, 1000)) == 200
        clock.advance(timedelta(minutes=2))
        maintainer.execute("select mbus._maintain_temporary()")
    assert size(owner) < 200_000
    holder.execute("rollback")


def test_what_expired_or_came_too_late_is_swept(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    owner, maintainer = (connect(live, autocommit=True) for _ in range(2))
    name = make(owner)
    owner.execute("select mbus.post(%s, 'n=>1', expires => mbus.now() + '1 second')", (name,))
    for _ in range(4):
        clock.advance(timedelta(minutes=2))
        maintainer.execute("select mbus._maintain_temporary()")
    assert size(owner) == 0


def test_a_roll_back_of_maintenance_hides_nothing(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    owner, maintainer = connect(live, autocommit=True), connect(live)
    name = make(owner)
    for turn in range(8):
        post(owner, name, turn)
        clock.advance(timedelta(minutes=2))
        maintainer.execute("select mbus._maintain_temporary()")
        if turn % 2:
            maintainer.rollback()
        else:
            maintainer.commit()
    # The owner takes and rolls back around maintenance in its own transaction.
    owner.autocommit = False
    assert len(take(owner, name)) == 8
    owner.execute("select mbus._maintain_temporary()")
    owner.rollback()
    for _ in range(3):
        clock.advance(timedelta(minutes=2))
        maintainer.execute("select mbus._maintain_temporary()")
        maintainer.commit()
    assert take(owner, name) == [str(turn) for turn in range(8)]
