"""Tasks that are sent in the caller's own transaction, with each library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from celery import Celery, chain, group
from kombu import Exchange, Queue
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from postroad.broker.transaction import TransactionConnection
from postroad.bus import Bus
from postroad.testing import wait_until
from tests.fixtures.postgres import Connect
from tests.integration.broker import senders
from tests.integration.broker.crew import Hire, lines
from tests.integration.broker.senders import SENDERS, send, sqlalchemy_url

DELIVERED = "select data, delayed_until, expires from mbus.{}(1000)"


def messages(database: str, queue: str = "celery", level: str = "") -> list[dict[str, Any]]:
    """Consume the messages of a queue."""
    with psycopg.connect(database, row_factory=dict_row) as connection:
        found = connection.execute("select bus_name from broker.find_queue(%s)", (queue,))
        row = found.fetchone()
        assert row is not None
        name = sql.Identifier(f"consumen_{row['bus_name']}{level}_by_default")
        rows = connection.execute(sql.SQL(DELIVERED).format(name)).fetchall()
        return [{**row, "data": json.loads(row["data"])} for row in rows]


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database) as connection:
        yield connection


@pytest.mark.parametrize("name", SENDERS)
def test_a_task_is_sent_by_the_commit_only(
    name: str, database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The event is sent in a savepoint, which is another statement for each library.
    monkeypatch.setitem(senders.app.conf, "task_send_sent_event", True)
    setting_up = connect(database)
    setting_up.execute("create table shop_order (number int primary key)")
    setting_up.execute("create sequence shop_order_number")
    setting_up.commit()
    with SENDERS[name](database) as order:
        order(False)
        committed = [order(True), order(True)]
        order(False)
    found = [each["data"] for each in messages(database)]
    assert [json.loads(each["body"])[0] for each in found] == [
        [str(number)] for number in committed
    ]


def test_the_message_is_that_of_the_transport(
    app: Celery, database: str, connection: psycopg.Connection
) -> None:
    options = {
        "task_id": "one",
        "headers": {"tenant": "north"},
        "expiration": 3600,
    }
    app.send_task("record", ("text",), **options)
    app.send_task("record", ("text",), connection=TransactionConnection(connection), **options)
    connection.commit()
    usual, ours = messages(database)
    for each in (usual, ours):
        # Chosen for each message.
        each["data"]["properties"].pop("delivery_tag", None)
        assert each.pop("expires") is not None
    assert ours == usual


def test_priority_eta_and_routing_are_those_of_the_task(
    app: Celery, database: str, connection: psycopg.Connection
) -> None:
    ours = TransactionConnection(connection)
    due = datetime.now(UTC) + timedelta(hours=1)
    app.send_task("record", ("high",), priority=7, connection=ours)
    app.send_task("record", ("later",), eta=due, connection=ours)
    app.send_task("record", ("other",), queue="other", connection=ours)
    connection.commit()
    assert len(messages(database, level="_7")) == 1
    assert len(messages(database, "other")) == 1
    assert messages(database) == []
    row = connection.execute("select due_at from mbus.delayed").fetchone()
    assert row == (due,)


def test_a_queue_that_was_created_in_a_rolled_back_transaction_is_created_again(
    app: Celery, database: str, connection: psycopg.Connection
) -> None:
    ours = TransactionConnection(connection)
    app.send_task("record", ("first",), queue="new", connection=ours)
    connection.rollback()
    app.send_task("record", ("second",), queue="new", connection=ours)
    connection.commit()
    assert len(messages(database, "new")) == 1


def test_a_failed_transaction_raises_the_error_of_the_driver(
    app: Celery, connection: psycopg.Connection
) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("select 1 / 0")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        app.send_task("record", ("text",), connection=TransactionConnection(connection))


def test_a_connection_of_sqlalchemy_begins_its_transaction(database: str) -> None:
    from sqlalchemy import create_engine

    engine = create_engine(sqlalchemy_url(database, "psycopg"))
    with engine.connect() as connection:
        send(1, connection)
        connection.commit()
    with engine.connect() as connection:
        send(2, connection)
    engine.dispose()
    assert len(messages(database)) == 1


def test_a_task_is_sent_in_a_pipeline(database: str, connection: psycopg.Connection) -> None:
    with connection.pipeline():
        send(1, connection)
        connection.rollback()
        send(2, connection)
        connection.commit()
    assert [json.loads(each["data"]["body"])[0] for each in messages(database)] == [["2"]]


async def test_a_connection_that_is_awaited_is_refused(database: str) -> None:
    import asyncpg
    from sqlalchemy.ext.asyncio import (
        async_scoped_session,
        async_sessionmaker,
        create_async_engine,
    )

    engine = create_async_engine(sqlalchemy_url(database, "asyncpg"))
    sessions = async_sessionmaker(engine)
    part = conninfo_to_dict(database)
    at = {"host": str(part["host"]), "port": str(part["port"]), "user": str(part["user"])}
    bare = await asyncpg.connect(database=str(part["dbname"]), **at)
    async with (
        await psycopg.AsyncConnection.connect(database) as driver,
        engine.connect() as connection,
        sessions() as session,
    ):
        scoped = async_scoped_session(sessions, lambda: None)
        for source in (driver, connection, session, scoped, bare):
            with pytest.raises(TypeError, match="run_sync"):
                TransactionConnection(source)
    await bare.close()
    await engine.dispose()


def test_every_form_but_the_chord_is_sent_by_the_commit_only(
    app: Celery, database: str, connection: psycopg.Connection
) -> None:
    app.send_task("record", ("creates the queue",))
    messages(database)
    add = app.signature("add")
    following = chain(add.clone((1, 2)), add.clone((3,)), app=app)
    several = group([add.clone((1, 2)), following], app=app)
    # Continues with a chord, which the worker of the first task sends.
    branching = chain(add.clone((1, 2)), several, app.signature("total"), app=app)
    forms = [add.clone((1, 2)), following, several, branching]
    for form in forms:
        form.apply_async(connection=TransactionConnection(connection))
        connection.rollback()
        assert messages(database) == []
        form.apply_async(connection=TransactionConnection(connection))
        connection.commit()
        assert len(messages(database)) == (2 if form is several else 1)


def test_the_queue_of_an_exchange_is_declared_and_bound(
    app: Celery, database: str, connection: psycopg.Connection
) -> None:
    app.send_task("record", ("creates the schema",))
    for name, source in (
        ("mail", Exchange("shop", "topic")),
        ("amq", Exchange("amq.topic", "topic")),
    ):
        app.send_task(
            "record",
            ("text",),
            exchange=source.name,
            routing_key="order.new",
            declare=[Queue(name, source, routing_key="order.*")],
            connection=TransactionConnection(connection),
        )
        connection.commit()
        assert len(messages(database, name)) == 1


@pytest.fixture
def as_role(app: Celery, connection: psycopg.Connection) -> Iterator[Callable[[], object]]:
    """Returns what makes the transaction that of a role that may only publish."""
    app.send_task("record", ("by the owner",))
    connection.execute("create role shop_app_of_test nologin")
    connection.execute("grant usage on schema broker to shop_app_of_test")
    connection.execute("grant execute on function broker.publish to shop_app_of_test")
    connection.execute("create table shop_order (number int)")
    connection.execute("grant insert on shop_order to shop_app_of_test")
    connection.commit()
    yield lambda: connection.execute("set local role shop_app_of_test")
    connection.rollback()
    connection.execute("drop owned by shop_app_of_test")
    connection.execute("drop role shop_app_of_test")
    connection.commit()


def test_a_role_needs_only_the_function_that_publishes(
    app: Celery, database: str, connection: psycopg.Connection, as_role: Callable[[], object]
) -> None:
    as_role()
    app.send_task("record", ("by the role",), connection=TransactionConnection(connection))
    connection.commit()
    assert len(messages(database)) == 2


def test_the_event_of_a_sent_task_is_part_of_the_transaction(
    app: Celery, database: str, connection: psycopg.Connection, as_role: Callable[[], object]
) -> None:
    app.conf.task_send_sent_event = True
    with app.connection() as broker:
        Queue("events", Exchange("celeryev", "topic"), routing_key="#")(broker.channel()).declare()
    for commits in (False, True):
        as_role()
        connection.execute("insert into shop_order values (1)")
        app.send_task("record", ("by the role",), connection=TransactionConnection(connection))
        connection.commit() if commits else connection.rollback()
    assert connection.execute("select count(*) from shop_order").fetchone() == (1,)
    assert len(messages(database)) == 2
    assert len(messages(database, "events")) == 1


def test_the_event_of_a_task_is_sent_outside_a_transaction_too(
    app: Celery, database: str, connection: psycopg.Connection
) -> None:
    app.conf.task_send_sent_event = True
    with app.connection() as broker:
        Queue("events", Exchange("celeryev", "topic"), routing_key="#")(broker.channel()).declare()
    connection.autocommit = True
    app.send_task("record", ("text",), connection=TransactionConnection(connection))
    assert len(messages(database)) == 1
    assert len(messages(database, "events")) == 1


def test_an_event_that_fails_leaves_the_transaction_as_it_was(
    app: Celery, database: str, connection: psycopg.Connection, as_role: Callable[[], object]
) -> None:
    app.conf.task_send_sent_event = True
    with app.connection() as broker:
        Queue("events", Exchange("celeryev", "topic"), routing_key="#")(broker.channel()).declare()
    row = connection.execute("select bus_name from broker.find_queue('events')").fetchone()
    assert row is not None
    with Bus(database) as bus:
        bus.drop_queue(row[0])
    as_role()
    connection.execute("insert into shop_order values (1)")
    app.send_task("record", ("by the role",), connection=TransactionConnection(connection))
    connection.commit()
    assert connection.execute("select count(*) from shop_order").fetchone() == (1,)
    assert len(messages(database)) == 2


@pytest.mark.slow
def test_workers_run_the_tasks_of_a_transaction(
    app: Celery, hire: Hire, connection: psycopg.Connection, tmp_path: Path
) -> None:
    hire("--concurrency=1")
    ours = TransactionConnection(connection)
    add, record = app.signature("add"), app.signature("record")
    following = chain(record.clone(("never",)), record.clone(("never",), immutable=True), app=app)
    group([record.clone(("never",)), following], app=app).apply_async(connection=ours)
    following.apply_async(connection=ours)
    app.send_task("record", ("never",), connection=ours)
    connection.rollback()
    group([record.clone((text,)) for text in "abc"], app=app).apply_async(connection=ours)
    sum_of_all = chain(add.clone((1, 2)), add.clone((3,)), app=app).apply_async(connection=ours)
    connection.commit()
    assert sum_of_all.get(timeout=60) == 6
    wait_until(lambda: len(lines(tmp_path, "records")) >= 3, what="tasks", timeout_seconds=60)
    assert sorted(lines(tmp_path, "records")) == ["a", "b", "c"]
