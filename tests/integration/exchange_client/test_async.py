"""`AsyncExchange`: the blocking client in threads, on asynchronous and blocking connections."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.exchange.client import (
    AsyncExchange,
    ConnectionBusy,
    Exchange,
    ProcessCancelled,
    Refused,
)
from postroad.testing import wait_until_async
from tests.fixtures.exchange_server import ExchangeProcess, unique
from tests.integration.exchange_client.erps import Erp

INSERT = "insert into orders (id, process_id) values (%s, %s)"


@pytest.fixture
def clients(served: ExchangeProcess) -> tuple[AsyncExchange, AsyncExchange]:
    tokens = served.token(unique("mobile")), served.token(unique("erp"))
    mobile, instance = (AsyncExchange(served.url, token) for token in tokens)
    return mobile, instance


@pytest.mark.parametrize("autocommit", [False, True])
async def test_a_block_on_an_asynchronous_connection(
    served: ExchangeProcess,
    clients: tuple[AsyncExchange, AsyncExchange],
    make_erp: Callable[[str], Erp],
    autocommit: bool,
) -> None:
    (mobile, instance), erp, database = clients, make_erp("postgres"), unique("db")
    large = b"y" * 300_000
    await mobile.send(database, content=large, id="m1")
    await mobile.send(database, messages=[{"id": "a", "body": 1}], id="m2", order=1)
    connect = psycopg.AsyncConnection.connect
    async with await connect(erp.dsn, autocommit=autocommit) as connection:
        async with instance.process(database, connection) as work:
            assert [file.id for file in work.files] == ["m2", "m1"]
            assert work.files[1].content == large
            for file in work.files:
                await connection.execute(INSERT, (file.id, work.id))
                work.reply(file.sender, {"taken": file.id}, reply_to=file)
        assert work.is_confirmed
        async with instance.process(database, connection) as idle:
            assert not idle
    assert erp.orders() == ["m1", "m2"]
    assert (await mobile.status("m2"))["state"] == "done"
    replies = await mobile.receive()
    assert [reply.body for reply in replies] == [{"taken": "m2"}, {"taken": "m1"}]
    for reply in replies:
        await mobile.ack(reply)
    assert served.states(database) == {"done": 2, "reply done": 2}


async def test_a_block_that_is_cancelled_is_rolled_back_and_told(
    served: ExchangeProcess,
    clients: tuple[AsyncExchange, AsyncExchange],
    make_erp: Callable[[str], Erp],
) -> None:
    (mobile, instance), erp, database = clients, make_erp("postgres"), unique("db")
    await mobile.send(database, 1, id="m1")
    inside = asyncio.Event()

    async def work_for_ever() -> None:
        async with (
            await psycopg.AsyncConnection.connect(erp.dsn) as connection,
            instance.process(database, connection) as work,
        ):
            await connection.execute(INSERT, ("m1", work.id))
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work_for_ever())
    await asyncio.wait_for(inside.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert erp.orders() == []
    states = served.rows("select state from exchange.process where database_id = %s", database)
    assert states == [("ABORTED",)]


async def test_a_cancelled_task_ends_its_process_before_its_connection_is_rolled_back(
    served: ExchangeProcess,
    clients: tuple[AsyncExchange, AsyncExchange],
    make_erp: Callable[[str], Erp],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (mobile, instance), erp, database = clients, make_erp("postgres"), unique("db")
    await mobile.send(database, 1, id="m1")
    loop, preparing, rolled_back = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    may_answer = threading.Event()
    prepare = Exchange.prepare

    def prepare_slowly(self: Exchange, *arguments: Any) -> Any:
        loop.call_soon_threadsafe(preparing.set)
        assert may_answer.wait(30)
        return prepare(self, *arguments)

    monkeypatch.setattr(Exchange, "prepare", prepare_slowly)
    connection = await psycopg.AsyncConnection.connect(erp.dsn)

    async def work_on_a_lent_connection() -> None:
        try:
            async with instance.process(database, connection) as work:
                await connection.execute(INSERT, ("m1", work.id))
        except BaseException:
            await connection.rollback()
            rolled_back.set()
            raise

    task = asyncio.create_task(work_on_a_lent_connection())
    await asyncio.wait_for(preparing.wait(), 20)
    task.cancel()
    # The old code rolled back here; the right one cannot before the exchange has answered.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(rolled_back.wait(), 0.3)
    task.cancel()
    may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    async def is_done() -> bool:
        return served.states(database) == {"done": 1}

    await wait_until_async(is_done, what="the message is done")
    assert erp.orders() == ["m1"]
    await connection.close()


async def test_a_task_that_is_cancelled_while_its_process_starts_leaves_none_open(
    served: ExchangeProcess,
    clients: tuple[AsyncExchange, AsyncExchange],
    make_erp: Callable[[str], Erp],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (mobile, instance), erp, database = clients, make_erp("postgres"), unique("db")
    await mobile.send(database, 1, id="m1")
    loop, starting, may_answer = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    start = Exchange.start

    def start_slowly(self: Exchange, request: dict[str, Any]) -> Any:
        answer = start(self, request)
        loop.call_soon_threadsafe(starting.set)
        assert may_answer.wait(30)
        return answer

    monkeypatch.setattr(Exchange, "start", start_slowly)

    async def work() -> None:
        async with (
            await psycopg.AsyncConnection.connect(erp.dsn) as connection,
            instance.process(database, connection),
        ):
            raise AssertionError("the block is entered")

    task = asyncio.create_task(work())
    await asyncio.wait_for(starting.wait(), 20)
    task.cancel()
    may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    states = served.rows("select state from exchange.process where database_id = %s", database)
    assert states == [("ABORTED",)]
    assert served.states(database) == {"queued": 1}


async def test_a_process_that_others_marked_as_aborted_does_not_commit(
    served: ExchangeProcess,
    clients: tuple[AsyncExchange, AsyncExchange],
    make_erp: Callable[[str], Erp],
) -> None:
    (mobile, instance), erp, database = clients, make_erp("postgres"), unique("db")
    await mobile.send(database, 1, id="m1")
    other = AsyncExchange(served.url, served.token(unique("other")))

    async def settled_midway() -> None:
        async with (
            await psycopg.AsyncConnection.connect(erp.dsn) as connection,
            instance.process(database, connection) as work,
        ):
            await connection.execute(INSERT, ("m1", work.id))
            async with await psycopg.AsyncConnection.connect(erp.dsn) as another:
                # The exchange refuses the report about a live process; the marker stays.
                with pytest.raises(Refused):
                    await other.settle(database, another, [work.id])

    with pytest.raises(ProcessCancelled):
        await settled_midway()
    assert erp.orders() == []


async def test_a_blocking_connection_works_in_threads(
    clients: tuple[AsyncExchange, AsyncExchange], tmp_path: Path
) -> None:
    (mobile, instance), database = clients, unique("db")
    await mobile.send(database, {"a": 1}, id="m1")
    connection = sqlite3.connect(tmp_path / "erp.sqlite", check_same_thread=False)
    connection.execute("create table orders (id text)")
    connection.commit()
    connection.execute("insert into orders values ('open')")
    with pytest.raises(ConnectionBusy):
        await instance.process(database, connection).__aenter__()
    connection.rollback()
    async with instance.process(database, connection) as work:
        for file in work.files:
            connection.execute("insert into orders values (?)", (file.id,))
    assert connection.execute("select id from orders").fetchall() == [("m1",)]
    connection.close()


def test_both_colours_have_the_same_names_and_words() -> None:
    def described(kind: type) -> dict[str, Any]:
        return {
            name: (list(inspect.signature(value).parameters), inspect.getdoc(value))
            for name, value in vars(kind).items()
            if callable(value) and not name.startswith("_")
        }

    asynchronous, blocking = described(AsyncExchange), described(Exchange)
    assert asynchronous == {name: blocking[name] for name in asynchronous}
    assert {"send", "status", "receive", "ack", "process", "settle"} == set(asynchronous)
