"""Several servers share one journal and one root; each may die, and none is missed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.cli.components import SCHEMAS
from postroad.exchange.check import check
from postroad.exchange.errors import RootLocked, TakenOver
from postroad.exchange.files import Storage
from postroad.exchange.server import ExchangeServer
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import TestServer, wait_until_async
from tests.fixtures.exchange import BASE, Caller, Room


@pytest.fixture
async def second(exchange: Room) -> AsyncIterator[ExchangeServer]:
    server = ExchangeServer(
        exchange.dsn, exchange.root, ExchangeSettings(**exchange.settings), port=0
    )
    async with server:
        yield server


def _sweeper(room: Room) -> int:
    return int(room.rows("select sweeper from exchange.server")[0]["sweeper"])


def _members(room: Room) -> list[int]:
    return [row["epoch"] for row in room.rows("select epoch from exchange.member order by 1")]


async def _at(caller: Caller, server: ExchangeServer, path: str, body: Any) -> dict[str, Any]:
    answer = await caller.http.post(f"{server.url}{BASE}{path}", json=body)
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


async def test_each_call_of_a_process_may_go_to_another_server(
    exchange: Room, second: ExchangeServer
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    start = {"database": "sales", "attempt": "a1"}
    process = (await _at(erp, second, "/processes", start))["process"]
    assert [file["body"] for file in process["files"]] == [{"id": "m1"}]
    assert (await erp.start(attempt="a1"))["process"]["id"] == process["id"]
    reply = {"name": "r1", "recipient": "phone", "body": {"ok": True}}
    await erp.prepare(process["id"], [reply])
    path = f"/processes/{process['id']}/commit"
    assert await _at(erp, second, path, {}) == {"status": "OK"}
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    assert [reply["body"] for reply in await phone.replies()] == [{"ok": True}]
    await exchange.until_state(process["id"], "DONE")
    assert [*exchange.files()] == ["Messages", "Log"]


async def test_a_message_that_two_servers_receive_at_once_is_one(
    exchange: Room, second: ExchangeServer
) -> None:
    phone = exchange.caller("phone")
    body = {"id": "m1", "database": "sales", "body": 1}
    servers = [exchange.server, second] * 4
    answers = await asyncio.gather(*(_at(phone, one, "/messages", body) for one in servers))
    assert {answer["sequence"] for answer in answers} == {1}
    assert exchange.files() == {"Messages": ["1_m1_from_phone_to_any.json"]}


async def test_one_server_sweeps_and_another_takes_over(
    exchange: Room, second: ExchangeServer
) -> None:
    first = _sweeper(exchange)
    assert first in _members(exchange)
    await exchange.server.stop()
    assert first not in _members(exchange)

    async def has_changed() -> bool:
        return _sweeper(exchange) != first

    await wait_until_async(has_changed, what="another sweeper")
    assert [_sweeper(exchange)] == _members(exchange)


async def test_what_was_ready_stays_ready_while_another_server_serves(
    exchange: Room, second: ExchangeServer
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await erp.prepare(process["id"])
    await exchange.restart()
    assert exchange.state(process["id"]) == "READY_TO_COMMIT"
    await second.stop()
    await exchange.restart()
    assert exchange.state(process["id"]) == "UNKNOWN"


async def test_a_server_that_was_removed_is_refused_and_ends(exchange: Room) -> None:
    phone = exchange.caller("phone")
    exchange.rows("delete from exchange.member returning epoch")
    async with asyncio.timeout(20):
        with pytest.raises(TakenOver):
            await exchange.server.join()
    exchange.server = ExchangeServer(exchange.dsn, exchange.root, port=0)
    async with exchange.server:
        await phone.send("m1")


async def test_temporary_files_of_a_running_server_stay(
    exchange: Room, second: ExchangeServer
) -> None:
    await exchange.caller("phone").send("m1")
    assert second.mover is not None
    mine, others = second.mover.storage, Storage(exchange.root, "0")
    kept, dropped = mine.temporary_name(), others.temporary_name()
    for storage, name in ((mine, kept), (others, dropped)):
        storage.write("sales", "Messages", name, b"half")
    await exchange.restart()

    async def is_dropped() -> bool:
        return not mine.exists("sales", "Messages", dropped)

    await wait_until_async(is_dropped, what="the file of an ended server removed")
    with psycopg.connect(exchange.dsn) as connection:
        assert check(connection, Storage(exchange.root), is_fixing=True) == []
    assert mine.exists("sales", "Messages", kept)


async def test_a_file_that_a_suspended_server_moved_late_is_found(exchange: Room) -> None:
    """It had read a plan, was suspended while others followed that one and the next, and woke."""
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    answer = await phone.send("m1")
    folder = exchange.root / "sales"
    (folder / "Messages" / answer["name"]).rename(folder / "Log" / answer["name"])
    process = await erp.begin()
    assert [file["body"] for file in process["files"]] == [{"id": "m1"}]
    assert exchange.files() == {"Messages": [answer["name"]]}
    assert exchange.alerts() == []


async def test_time_passes_in_short_steps_only(exchange: Room) -> None:
    await exchange.server.stop()

    def served() -> float:
        rows = exchange.rows("select exchange._served(s) as seconds from exchange.server s")
        return float(rows[0]["seconds"])

    set_clock = "update exchange.server set seen_at = now() + %s::interval returning 1"
    exchange.rows(set_clock, "0 s")
    begun = served()
    exchange.rows(set_clock, "-1 day")
    assert begun + 4 < served() < begun + 6
    exchange.rows(set_clock, "1 day")
    assert served() <= begun


async def test_nothing_is_lost_or_doubled_while_servers_come_and_go(exchange: Room) -> None:
    """Senders and ERP instances repeat their calls at another server when one has gone."""
    count = 60
    senders = [exchange.caller(f"phone-{one}") for one in range(2)]
    erps = [exchange.caller(f"erp-{one}") for one in range(2)]
    servers = [exchange.server]
    effects: list[str] = []
    is_sent = asyncio.Event()

    def new() -> ExchangeServer:
        return ExchangeServer(
            exchange.dsn, exchange.root, ExchangeSettings(**exchange.settings), port=0
        )

    async def call(caller: Caller, path: str, body: Any) -> dict[str, Any]:
        while True:
            for server in servers:
                with contextlib.suppress(Exception):
                    return await _at(caller, server, path, body)
            await asyncio.sleep(0.01)

    async def send(caller: Caller) -> None:
        for number in range(count):
            body = {"id": f"m{number}", "database": f"db{number % 2}", "body": number}
            await call(caller, "/messages", body)

    async def take(caller: Caller, database: str) -> None:
        for attempt in range(10_000):
            body = {"database": database, "attempt": f"{database}-{attempt}", "max_files": 5}
            answer = await call(caller, "/processes", body)
            if answer["status"] == "IDLE":
                if is_sent.is_set():
                    return
                continue
            process = answer["process"]
            path = f"/processes/{process['id']}"
            if (await call(caller, f"{path}/prepare", {}))["status"] == "OK":
                effects.extend(f"{file['sender']} {file['id']}" for file in process["files"])
                await call(caller, f"{path}/commit", {})

    async def send_all() -> None:
        await asyncio.gather(*map(send, senders))
        is_sent.set()

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        group.create_task(send_all())
        for number, erp in enumerate(erps):
            group.create_task(take(erp, f"db{number}"))
        group.create_task(_rotate(servers, new, is_sent))
    exchange.server = servers[0]
    expected = [f"phone-{one} m{number}" for one in range(2) for number in range(count)]
    assert sorted(effects) == sorted(expected)


async def _rotate(servers: list[ExchangeServer], new: Any, is_done: asyncio.Event) -> None:
    while not is_done.is_set():
        server = new()
        await server.start()
        await server.ready()
        servers.append(server)
        await servers.pop(0).stop()


async def test_a_server_of_an_older_version_serves_alone(database: str, tmp_path: Path) -> None:
    """It holds both locks exclusively."""
    server = ExchangeServer(database, tmp_path, port=0)
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        await server.start()
        with pytest.raises(RootLocked):
            await server.ready()


async def test_a_copy_of_the_database_does_not_use_the_same_root(
    exchange: Room, server: TestServer
) -> None:
    with server.clone(*SCHEMAS) as copy:
        second = ExchangeServer(copy, exchange.root, port=0)
        await second.start()
        with pytest.raises(RootLocked):
            await second.ready()
