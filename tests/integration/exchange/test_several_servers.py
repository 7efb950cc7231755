"""Several servers share one journal and one root; each may die, and none is missed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.cli.components import SCHEMAS
from postroad.exchange.check import check
from postroad.exchange.errors import ExchangeError, FileMissing, RootForeign, RootLocked, TakenOver
from postroad.exchange.files import Storage
from postroad.exchange.maintenance import Maintenance
from postroad.exchange.moves import Move
from postroad.exchange.server import ExchangeServer
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import TestServer, wait_until_async
from tests.fixtures.exchange import BASE, Caller, LocalExchange, new_root


@pytest.fixture
async def second(exchange: LocalExchange) -> AsyncIterator[ExchangeServer]:
    server = ExchangeServer(
        exchange.dsn, exchange.root, ExchangeSettings(**exchange.settings), port=0
    )
    async with server:
        yield server


def _sweeper(local: LocalExchange) -> int:
    return int(local.rows("select sweeper from exchange.server")[0]["sweeper"])


def _members(local: LocalExchange) -> list[int]:
    return [row["epoch"] for row in local.rows("select epoch from exchange.member order by 1")]


async def _at(caller: Caller, server: ExchangeServer, path: str, body: Any) -> dict[str, Any]:
    answer = await caller.http.post(f"{server.url}{BASE}{path}", json=body)
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


async def test_each_call_of_a_process_may_go_to_another_server(
    exchange: LocalExchange, second: ExchangeServer
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
    exchange: LocalExchange, second: ExchangeServer
) -> None:
    phone = exchange.caller("phone")
    body = {"id": "m1", "database": "sales", "body": 1}
    servers = [exchange.server, second] * 4
    answers = await asyncio.gather(*(_at(phone, one, "/messages", body) for one in servers))
    assert {answer["sequence"] for answer in answers} == {1}
    assert exchange.files() == {"Messages": ["1_m1_from_phone_to_any.json"]}


async def test_one_server_sweeps_and_another_takes_over(
    exchange: LocalExchange, second: ExchangeServer
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
    exchange: LocalExchange, second: ExchangeServer
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


async def test_a_server_that_was_removed_is_refused_and_ends(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone")
    exchange.rows("delete from exchange.member returning epoch")
    async with asyncio.timeout(20):
        with pytest.raises(TakenOver):
            await exchange.server.join()
    exchange.server = ExchangeServer(exchange.dsn, exchange.root, port=0)
    async with exchange.server:
        await phone.send("m1")


async def test_temporary_files_of_a_running_server_stay(
    exchange: LocalExchange, second: ExchangeServer
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


async def test_a_file_that_a_suspended_server_moved_late_is_found(exchange: LocalExchange) -> None:
    """It had read a plan, was suspended while others followed that one and the next, and woke."""
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    answer = await phone.send("m1")

    async def is_recorded() -> bool:
        return not exchange.rows("select from exchange.move")

    await wait_until_async(is_recorded, what="the record that the file is in place")
    folder = exchange.root / "sales"
    (folder / "Messages" / answer["name"]).rename(folder / "Log" / answer["name"])
    process = await erp.begin()
    assert [file["body"] for file in process["files"]] == [{"id": "m1"}]
    assert exchange.files() == {"Messages": [answer["name"]]}
    assert exchange.alerts() == []


async def test_a_file_that_another_server_moved_back_is_moved_again(
    exchange: LocalExchange, second: ExchangeServer
) -> None:
    """It follows a plan that it read before a newer one was followed and recorded."""
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    name = (await phone.send("m1"))["name"]
    process = await erp.begin()
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    await exchange.until_state(process["id"], "DONE")
    assert exchange.files() == {"Log": [name]}
    (row,) = exchange.rows("select number, size, sha256 from exchange.message")
    stale = Move(**row, database="sales", name=name, folder="Messages", source="Log", version=1)
    assert second.mover is not None
    await second.mover.follow([stale])

    async def is_back() -> bool:
        return exchange.files() == {"Log": [name]}

    await wait_until_async(is_back, what="the file in its folder")
    assert exchange.alerts() == []


async def test_a_message_that_another_server_handed_out_meanwhile_is_stored(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone, mover = exchange.caller("phone"), exchange.server.mover
    assert mover is not None

    async def move_late(moves: list[Move]) -> list[ExchangeError | None]:
        exchange.rows("update exchange.message set state = 'leased' returning 1")
        return [FileMissing("not in Messages", number=move.number) for move in moves]

    monkeypatch.setattr(mover, "outcomes", move_late)
    assert (await phone.send("m1"))["sequence"] == 1


async def test_a_root_of_its_own_is_refused_while_another_server_runs(
    exchange: LocalExchange,
) -> None:
    """No message has bound the journal to the root of the first one yet."""
    second = ExchangeServer(exchange.dsn, new_root(), port=0)
    await second.start()
    with pytest.raises(RootForeign):
        await second.ready()
    await exchange.server.stop()
    async with ExchangeServer(exchange.dsn, new_root(), port=0):
        pass


async def test_a_server_that_lost_its_lock_for_a_moment_stays(exchange: LocalExchange) -> None:
    (first,) = _members(exchange)
    exchange.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'postroad exchange lock' and datname = current_database()"
    )
    async with ExchangeServer(exchange.dsn, exchange.root, port=0):
        assert first in _members(exchange)
        await exchange.caller("phone").send("m1")


async def test_a_server_that_was_killed_in_a_container_is_removed_at_once(
    exchange: LocalExchange,
) -> None:
    """Its process had the number that the new one has."""
    await exchange.server.stop()
    holder = f"{socket.gethostname()}:{os.getpid()}"
    exchange.rows("insert into exchange.member values (-1, %s) returning epoch", holder)
    await exchange.restart()
    assert -1 not in _members(exchange)


async def test_of_servers_that_start_at_once_one_is_the_first(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    await exchange.server.stop()
    firsts: list[bool] = []
    recover = Maintenance.recover

    async def record(self: Maintenance, *, is_first: bool) -> None:
        firsts.append(is_first)
        await recover(self, is_first=is_first)

    async def are_waiting() -> bool:
        waiting = "select from pg_stat_activity where wait_event_type = 'Lock'"
        return len(exchange.rows(f"{waiting} and query like '%take_over%'")) == 2

    monkeypatch.setattr(Maintenance, "recover", record)
    servers = [ExchangeServer(exchange.dsn, exchange.root, port=0) for _ in range(2)]
    async with await psycopg.AsyncConnection.connect(exchange.dsn) as connection:
        await connection.execute("select from exchange.server for update")
        for server in servers:
            await server.start()
        await wait_until_async(are_waiting, what="both servers at their start")
        await connection.rollback()
    for server in servers:
        await server.ready()
    for server in servers:
        await server.stop()
    assert sorted(firsts) == [False, True]


async def test_what_became_ready_at_a_server_that_started_at_once_is_not_in_doubt(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await erp.prepare(process["id"])
    await exchange.server.stop()
    exchange.rows("update exchange.process set ready_at = ready_at + interval '1 h' returning 1")
    await exchange.restart()
    assert exchange.state(process["id"]) == "READY_TO_COMMIT"


async def test_a_file_whose_move_ended_during_the_check_is_no_finding(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = (await exchange.caller("phone").send("m1"))["name"]
    file = exchange.root / "sales" / "Messages" / name
    file.rename(file.with_name(".moving"))

    def arrive(*_: object) -> bool:
        file.with_name(".moving").rename(file)
        return True

    monkeypatch.setattr("postroad.exchange.check._is_still_so", arrive)
    with psycopg.connect(exchange.dsn) as connection:
        assert check(connection, Storage(exchange.root), is_fixing=True) == []


async def test_time_passes_in_short_steps_only(exchange: LocalExchange) -> None:
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


async def test_nothing_is_lost_or_doubled_while_servers_come_and_go(
    exchange: LocalExchange,
) -> None:
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
            # Read before the call: the last message may be stored while it is answered.
            was_sent = is_sent.is_set()
            answer = await call(caller, "/processes", body)
            if answer["status"] == "IDLE":
                if was_sent:
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
    exchange: LocalExchange, server: TestServer
) -> None:
    with server.clone(*SCHEMAS) as copy:
        second = ExchangeServer(copy, exchange.root, port=0)
        await second.start()
        with pytest.raises(RootLocked):
            await second.ready()
