"""dyn_consume and run_on_<queue>: an expression or a statement of the caller's own."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import (
    column,
    nobody_maintains,
    one,
    post,
    post_many,
    refused,
    rows,
    shift_clock,
    take,
)


def pick(connection: Connection, selector: str, consumer: str = "default") -> list[str]:
    return column(
        connection, "select data->'n' from mbus.dyn_consume('q', %s, %s)", selector, consumer
    )


def test_the_first_message_that_passes_is_taken(bus: Connection) -> None:
    post_many(bus, 5)
    assert pick(bus, "(t.data->'n')::integer > 2 -- a remark") == ["3"]
    assert pick(bus, "(t.data->'n')::integer > 9") == []
    assert column(bus, "select data->'n' from mbus.dyn_consume('q')") == ["1"]
    assert take(bus) == ["2", "4", "5"]


def test_it_sees_what_its_consumer_would_see(bus: Connection) -> None:
    iid = post(bus, 1, "trace=>x", expires="2100-01-01")
    assert pick(
        bus,
        f"t.iid = '{iid}' and t.headers->'destination' = 'q'"
        " and t.headers->'trace' = 'x' and t.expires > t.added",
    ) == ["1"]


def test_each_consumer_has_its_own(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'other')")
    post_many(bus, 2)
    assert pick(bus, "t.data->'n' = '2'", "other") == ["2"]
    assert take(bus) == ["1", "2"]
    assert take(bus, whose="q_by_other") == ["1"]


def test_it_looks_past_locked_messages_and_never_waits(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    post_many(first, 3)
    first.commit()
    assert pick(first, "true") == ["1"]
    assert pick(second, "true") == ["2"]
    first.rollback()
    second.commit()
    assert take(first) == ["1", "3"]


def test_it_looks_a_thousand_messages_ahead(bus: Connection) -> None:
    post_many(bus, 1001)
    assert pick(bus, "t.data->'n' = '1001'") == []
    assert pick(bus, "t.data->'n' = '1000'") == ["1000"]


def test_expired_and_delayed_messages_are_left_alone(bus: Connection) -> None:
    post(bus, 1, expires="2100-01-01")
    post(bus, 2, delayed_until="2100-01-01")
    assert pick(bus, "t.data->'n' = '2'") == []
    shift_clock(bus, timedelta(days=365 * 200))
    nobody_maintains(bus)
    assert pick(bus, "true") == ["2"]


def test_priorities_come_first(bus: Connection) -> None:
    post(bus, "normal")
    post(bus, "high", "priority=>high")
    assert pick(bus, "true") == ["high"]


def test_the_order_of_a_group_is_kept(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    for number in ("a1", "a2", "b1"):
        post(first, number, f"group=>{number[0]}")
    first.commit()
    assert pick(first, "t.data->'n' = 'a2'") == []
    first.commit()
    assert pick(first, "t.data->'n' = 'a1'") == ["a1"]
    assert pick(second, "true") == ["b1"]
    assert pick(second, "t.headers->'group' = 'a'") == []
    first.commit()
    assert pick(second, "true") == ["a2"]


@pytest.mark.parametrize(
    ("queue", "selector", "consumer", "code"),
    [
        ("none", "true", "default", "MB001"),
        ("q", "true", "none", "MB002"),
        ("q", "true", None, "MB002"),
        ("q", "t.nothing", "default", "MB008"),
        ("q", None, "default", "MB008"),
        ("q", "", "default", "MB008"),
        ("q", "true); select ('1', '2'", "default", "MB008"),
        ("q", "t.data->'n'", "default", "MB008"),
        ("q", "(t.data->'n')::integer = 1", "default", "MB008"),
        ("j", "true", "default", "MB019"),
    ],
)
def test_bad_input_is_refused(
    bus: Connection, queue: str, selector: str | None, consumer: str | None, code: str
) -> None:
    bus.execute("select mbus.create_queue('j', payload => 'jsonb')")
    post(bus, "x")
    with refused(bus, code):
        rows(bus, "select * from mbus.dyn_consume(%s, %s, %s)", queue, selector, consumer)
    assert take(bus) == ["x"]


@pytest.fixture
def runner(bus: Connection) -> Connection:
    """Give a queue with its run function and a table for what was run."""
    bus.execute("create table done (n text)")
    bus.execute("select mbus.create_run_function('q')")
    return bus


RUN = "insert into done select ($1).data->'n' where (($1).data->'n')::integer > 0"


def test_the_statement_runs_for_each_message(runner: Connection) -> None:
    post_many(runner, 150)
    assert one(runner, "select mbus.run_on_q(%s)", RUN) == 100
    assert one(runner, "select mbus.run_on_q(%s)", RUN) == 50
    assert one(runner, "select mbus.run_on_q(%s)", RUN) == 0
    assert one(runner, "select count(distinct n) from done") == 150
    assert take(runner) == []


def test_an_error_sends_its_message_to_the_dmq_and_the_others_go_on(runner: Connection) -> None:
    for number in (1, "x", 2):
        post(runner, number)
    assert one(runner, "select mbus.run_on_q(%s)", RUN) == 2
    assert column(runner, "select n from done") == ["1", "2"]
    ((consumer, error, attempts, data),) = rows(
        runner, "select consumer, error, attempts, data from mbus.dead"
    )
    assert (consumer, attempts, data) == ("default", 1, '"n"=>"x"')
    assert error == 'invalid input syntax for type integer: "x"'


def test_the_work_of_a_failed_one_is_undone(runner: Connection) -> None:
    runner.execute(
        "create function work(message mbus.qt_model) returns void language plpgsql as $$ begin"
        " insert into done values (message.data->'n');"
        " perform 1 / (message.data->'n')::integer; end $$"
    )
    for number in (0, 1):
        post(runner, number)
    assert one(runner, "select mbus.run_on_q('select work($1)')") == 1
    assert column(runner, "select n from done") == ["1"]


def test_a_message_that_fails_stays_locked_meanwhile(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    first.execute("select mbus.create_run_function('q')")
    post(first, "x")
    first.commit()
    assert one(first, "select mbus.run_on_q('select (($1).data->''n'')::integer')") == 0
    assert take(second) == []
    first.rollback()
    assert take(second) == ["x"]


@pytest.mark.both_versions
def test_groups_run_in_order(runner: Connection) -> None:
    for number in (11, 12, 21):
        post(runner, number, f"group=>{str(number)[0]}")
    assert one(runner, "select mbus.run_on_q(%s)", RUN) == 2
    assert one(runner, "select mbus.run_on_q(%s)", RUN) == 1
    assert column(runner, "select n from done") == ["11", "21", "12"]


@pytest.mark.parametrize("payload", ["jsonb", "text", "bytea"])
def test_other_payloads_run_as_well(connection: Connection, payload: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    connection.execute("create table done (n text)")
    connection.execute("select mbus.create_run_function('q')")
    text = {"jsonb": '{"a": 1}', "text": "abc", "bytea": "\\x61"}[payload]
    connection.execute("select mbus.post('q', %s::text)", (text,))
    assert one(connection, "select mbus.run_on_q('insert into done select ($1).data::text')") == 1
    assert column(connection, "select n from done") == [text]


@pytest.mark.parametrize(
    "statement",
    [
        None,
        "",
        "insert into nowhere select 1",
        "select $2",
        "commit",
        "create table more (n text)",
        "select 1; select 1/0",
        "select 1; select nothing",
    ],
)
def test_a_statement_that_cannot_run_touches_no_message(
    runner: Connection, statement: str | None
) -> None:
    post(runner, 1)
    with refused(runner, "MB012"):
        runner.execute("select mbus.run_on_q(%s)", (statement,))
    assert take(runner) == ["1"]
    assert column(runner, "select n from done") == []
    assert rows(runner, "select name from pg_prepared_statements where name = 'mbus_run_on'") == []


def test_making_it_twice_or_for_nobody(runner: Connection) -> None:
    runner.execute("select mbus.create_run_function('q')")
    runner.execute("select mbus.create_queue('q')")
    post(runner, 1)
    assert one(runner, "select mbus.run_on_q(%s)", RUN) == 1
    with refused(runner, "MB001"):
        runner.execute("select mbus.create_run_function('none')")
    runner.execute("select mbus.create_consumer('q', 'other')")
    runner.execute("select mbus.drop_consumer('q', 'default')")
    with refused(runner, "MB002"):
        runner.execute("select mbus.create_run_function('q')")
    with refused(runner, "MB002"):
        runner.execute("select mbus.run_on_q('select 1')")
    runner.execute("select mbus.drop_queue('q')")
    assert rows(runner, "select from pg_proc where proname = 'run_on_q'") == []


def test_the_retry_of_a_group_is_picked_first(bus: Connection) -> None:
    post(bus, 1, "group=>a")
    post(bus, 2, "group=>a")
    for _ in range(2):
        ((iid, token),) = rows(bus, "select iid, token from mbus.lease_q_by_default()")
        bus.execute("select mbus.nack(%s, %s, '0')", (iid, token))
        assert pick(bus, "t.data->'n' = '2'") == []
        assert pick(bus, "true") == ["1"]
        assert pick(bus, "true") == ["2"]
        post(bus, 1, "group=>a")
        post(bus, 2, "group=>a")
    bus.execute("select mbus.create_run_function('q')")
    ((iid, token),) = rows(bus, "select iid, token from mbus.lease_q_by_default()")
    bus.execute("select mbus.nack(%s, %s, '0')", (iid, token))
    bus.execute("create temp table ran (n text)")
    run = "select mbus.run_on_q($$insert into ran select ($1).data->'n'$$)"
    assert [one(bus, run) for _ in range(3)] == [1, 1, 0]
    assert column(bus, "select n from ran") == ["1", "2"]
