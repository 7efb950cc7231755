"""Files move between a folder and an object store while servers serve, and nothing is missed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from postroad.exchange import operations, status
from postroad.exchange.client import Exchange
from postroad.exchange.errors import RootForeign, StorageFailed
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.exchange.reader import verified
from postroad.exchange.server import ExchangeServer
from postroad.postgres import run_blocking
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import wait_until_async
from tests.fixtures.exchange import Caller, LocalExchange, stored
from tests.integration.exchange.object_store.conftest import (
    Store,
    checked,
    folders,
    object_of,
    until,
)
from tests.integration.exchange.test_workers import Served

LARGE = {"content_base64": "AAECAw==", "media_type": "image/png"}


@pytest.fixture
async def migrating(exchange: LocalExchange, store: Store) -> LocalExchange:
    """An exchange on a folder whose server knows the object store, too."""
    await exchange.restart(**store.settings, second_root=store.root)
    return exchange


def left(local: LocalExchange) -> int:
    found = run_blocking(local.dsn, status.migration)
    assert found is not None
    return int(found["files"])


async def swap(local: LocalExchange, **settings: Any) -> None:
    """Start the server again with the stores swapped."""
    root, local.root = local.root, local.settings["second_root"]
    await local.restart(second_root=str(root), **settings)


async def until_copied(local: LocalExchange) -> None:
    async def is_so() -> bool:
        return await asyncio.to_thread(left, local) == 0

    await wait_until_async(is_so, what="nothing left in the second store")


@contextlib.asynccontextmanager
async def another(
    local: LocalExchange, root: Any, second_root: Any = None
) -> AsyncIterator[ExchangeServer]:
    """Run a server with the stores that are given beside that of `local`."""
    settings = ExchangeSettings(**{**local.settings, "second_root": second_root})
    server = ExchangeServer(local.dsn, root, settings, port=0)
    await server.start()
    try:
        await server.ready()
        yield server
    finally:
        await server.stop()


async def fill(phone: Caller, erp: Caller) -> str:
    """Bring messages into each state; return the process that is ready to commit."""
    await phone.send("parked")
    await phone.send("done")
    first = await erp.begin()
    names = [file["name"] for file in first["files"]]
    reply = {"name": "r1", "recipient": "phone", "body": {"ok": 1}}
    results = {names[0]: {"status": "INCORRECT", "error": "wrong"}}
    assert (await erp.prepare(first["id"], [reply], results))[0] == 200
    assert (await erp.end(first["id"], "commit"))[0] == 200
    await phone.send("leased")
    second = await erp.begin()
    reply = {"name": "r2", "recipient": "phone", "body": {"ok": 2}}
    assert (await erp.prepare(second["id"], [reply]))[0] == 200
    await phone.send("queued")
    await phone.send("binary", **LARGE)
    return str(second["id"])


async def finish(phone: Caller, erp: Caller, process: str) -> None:
    """Use what `fill` has left."""
    assert (await erp.end(process, "commit"))[0] == 200
    assert [one["body"] for one in await phone.replies()] == [{"ok": 1}, {"ok": 2}]
    files = (await erp.begin())["files"]
    assert [file["id"] for file in files[:2]] == ["queued", "binary"]
    assert files[0]["body"] == {"id": "queued"}
    assert files[1]["content_base64"] == LARGE["content_base64"]


STATES = {
    "parked": "Error",
    "done": "Log",
    "r1": "Messages",
    "leased": "Messages",
    "r2": "Prepared",
    "queued": "Messages",
    "binary": "Messages",
}


async def test_files_of_a_folder_move_to_an_object_store(
    migrating: LocalExchange, store: Store
) -> None:
    local, root = migrating, Path(migrating.root)
    phone, erp = local.caller("phone"), local.caller("erp")
    process = await fill(phone, erp)
    assert store.contents() == {}
    await swap(local)
    await until_copied(local)
    assert folders(local) == STATES | {"leased": "Unknown", "r2": "Unknown"}
    assert len(store.contents()) == len(STATES)
    assert store.contents()[object_of(local, "queued")] == stored({"id": "queued"})
    for folder in (root / "sales").iterdir():
        assert [*folder.iterdir()] == []
    await phone.send("new")
    assert object_of(local, "new") in store.contents()
    assert checked(local) == []
    await local.restart(second_root=None)
    await finish(phone, erp, process)
    assert checked(local) == []


async def test_objects_move_to_a_folder(local: LocalExchange, store: Store, tmp_path: Path) -> None:
    phone, erp = local.caller("phone"), local.caller("erp")
    process = await fill(phone, erp)
    await local.restart(second_root=str(tmp_path / "root"))
    await swap(local)
    await until_copied(local)
    await until(lambda: store.contents() == {}, "the objects removed")
    local.root = Path(local.root)
    assert local.files() == {
        "Messages": [
            "1_r1_from_erp_to_phone.json",
            "4_queued_from_phone_to_any.json",
            "5_binary_from_phone_to_any.bin",
            "5_binary_from_phone_to_any.json",
        ],
        "Log": ["2_done_from_phone_to_any.json"],
        "Unknown": ["2_r2_from_erp_to_phone.json", "3_leased_from_phone_to_any.json"],
        "Error": ["1_parked_from_phone_to_any.json"],
    }
    assert checked(local) == []
    await local.restart(second_root=None)
    await finish(phone, erp, process)
    assert checked(local) == []


async def test_servers_change_to_the_new_store_one_after_another(
    exchange: LocalExchange, store: Store
) -> None:
    local, folder = exchange, exchange.root
    local.settings |= store.settings
    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    # Not before each server reads the new store.
    with pytest.raises(RootForeign, match="runs with other stores"):
        async with another(local, store.root, folder):
            pass
    with pytest.raises(RootForeign, match="has no marker, and the journal has messages"):
        async with another(local, store.root):
            pass
    async with another(local, folder, store.root):
        await local.restart(second_root=store.root)
        local.root = store.root
        await local.restart(second_root=str(folder))
        # Copying waits for the other server, which writes to the folder.
        await phone.send("m2")
        found = run_blocking(local.dsn, status.migration)
        assert (found["files"], len(found["writing_to_second_root"])) == (1, 1)
        with pytest.raises(RootForeign, match="files of this exchange are in"):
            async with another(local, folder):
                pass
    await until_copied(local)
    # Old settings are refused, also when no server runs.
    async with another(local, store.root):
        with pytest.raises(RootForeign, match="runs with other stores"):
            async with another(local, folder, store.root):
                pass
        assert run_blocking(local.dsn, status.migration) is not None
        await local.restart(second_root=None)
        assert run_blocking(local.dsn, status.migration) is None
    await local.server.stop()
    with pytest.raises(RootForeign, match="files of this exchange are in"):
        async with another(local, folder):
            pass
    await local.restart()
    assert [file["id"] for file in (await erp.begin())["files"]] == ["m1", "m2"]


async def test_a_store_cannot_be_dropped_while_files_are_in_it(
    migrating: LocalExchange, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    phone = migrating.caller("phone")
    await phone.send("m1")
    await migrating.server.stop()
    (file,) = (Path(migrating.root) / "sales/Messages").iterdir()
    # It is not what was received, so it is not copied.
    good = file.read_bytes()
    file.write_bytes(b"{}")
    folder, migrating.root = migrating.root, store.root
    await migrating.restart(second_root=str(folder))
    await migrating.server.stop()
    with pytest.raises(RootForeign, match="files of this exchange are in"):
        async with another(migrating, store.root):
            pass
    await migrating.restart(second_root=str(folder))

    async def is_reported() -> bool:
        return "file_not_copied" in caplog.messages

    await wait_until_async(is_reported, what="the event")
    assert left(migrating) == 1
    file.write_bytes(good)
    await until_copied(migrating)
    await migrating.restart(second_root=None)
    assert [one["id"] for one in (await migrating.caller("erp").begin())["files"]] == ["m1"]


async def test_a_second_store_is_new_or_that_of_the_journal(
    exchange: LocalExchange, store: Store, tmp_path: Path
) -> None:
    exchange.settings |= store.settings
    (tmp_path / "sales").mkdir()
    with pytest.raises(RootForeign, match="stores of the same kind"):
        ExchangeServer(exchange.dsn, exchange.root, ExchangeSettings(second_root=tmp_path))
    store.put(".root.json", b'{"root": "00000000-0000-0000-0000-000000000000"}', database="")
    with pytest.raises(RootForeign, match="the root of another journal"):
        async with another(exchange, exchange.root, store.root):
            pass


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_reader_finds_what_was_copied_after_it_read_the_row(
    migrating: LocalExchange, is_back: bool
) -> None:
    if is_back:
        await swap(migrating)
    await migrating.caller("phone").send("m1")
    shown = "select exchange._move(m, null) as move from exchange.message m"
    (row,) = migrating.rows(shown)
    await swap(migrating)
    await until_copied(migrating)
    assert migrating.server.mover is not None
    move = Move.of(row["move"])
    assert await verified(migrating.server.mover, move, limit_bytes=100) == stored({"id": "m1"})
    assert folders(migrating) == {"m1": "Messages"}
    assert checked(migrating) == []


@pytest.mark.parametrize("is_back", [False, True])
async def test_the_next_server_finishes_what_was_recorded(
    migrating: LocalExchange, store: Store, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    folder = Path(migrating.root) / "sales"
    if is_back:
        await swap(migrating)
    await migrating.caller("phone").send("m1")

    async def fails(mover: Mover, moves: Any) -> Any:
        raise StorageFailed("the server dies after it has recorded a copy")

    monkeypatch.setattr(Mover, "place", fails)
    await swap(migrating)
    pending = "select 1 from exchange.move"

    async def is_recorded() -> bool:
        return bool(migrating.rows(pending))

    await wait_until_async(is_recorded, what="a plan")
    await migrating.server.stop()
    # The copy is there, and what was copied, too.
    assert len(store.contents()) == 1
    assert len([*(folder / "Messages").iterdir()]) == 1
    monkeypatch.undo()
    await migrating.restart()

    async def is_followed() -> bool:
        return not migrating.rows(pending)

    await wait_until_async(is_followed, what="the plan followed")
    names = [file.name for file in (folder / "Messages").iterdir()]
    assert names == (["1_m1_from_phone_to_any.json"] if is_back else [])
    (file,) = (await migrating.caller("erp").begin())["files"]
    assert file["body"] == {"id": "m1"}


async def test_the_name_of_a_copy_is_durable_before_its_row_names_it(
    migrating: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = Path(migrating.root) / "sales/Messages"
    await swap(migrating)
    await migrating.caller("phone").send("m1")
    synced = list[Path]()
    fsync = os.fsync

    def syncing(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    async def fails(mover: Mover, moves: Any) -> Any:
        raise StorageFailed("the power fails after a copy was recorded")

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Mover, "place", fails)
    await swap(migrating)

    async def is_recorded() -> bool:
        return bool(migrating.rows("select 1 from exchange.move"))

    await wait_until_async(is_recorded, what="a plan")
    (copy,) = messages.iterdir()
    assert copy in synced
    assert messages in synced[synced.index(copy) :]


async def test_a_check_refuses_the_store_of_an_ended_migration(
    migrating: LocalExchange, store: Store
) -> None:
    await migrating.caller("phone").send("m1")
    folder = migrating.root
    await swap(migrating)
    await until_copied(migrating)
    await migrating.restart(second_root=None)
    await migrating.server.stop()
    migrating.root = folder
    with pytest.raises(RootForeign, match="is not the root of this journal"):
        checked(migrating, is_fixing=True)
    assert folders(migrating) == {"m1": "Messages"}


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_workers_that_are_replaced_read_the_stores_again(
    database: str, store: Store, tmp_path: Path
) -> None:
    folder, file = str(tmp_path / "root"), tmp_path / "postroad.toml"

    def configure(root: str, second_root: str | None) -> None:
        more = {"second_root": second_root} if second_root else {}
        settings = {**store.settings, "root": root, "sweep_interval": "200ms", **more}
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        file.write_text("\n".join(["[exchange]", *lines]))

    configure(folder, None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "postroad", "--config-file", str(file), "exchange", "serve"),
        *("--workers", "2", "--port", "0", "--json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "POSTROAD_DATABASE_URL": database},
    )
    try:
        assert process.stdout is not None
        url = json.loads(await process.stdout.readline())["url"]
        served = Served(database, url, process)
        made = run_blocking(database, operations.add_client, "phone", databases=["sales"])
        phone = Exchange(url, made.token)
        await asyncio.to_thread(phone.send, "sales", {"n": 1}, id="m1")
        for root, second in ((folder, store.root), (store.root, folder), (store.root, None)):
            configure(root, second)
            old = served.pids()
            process.send_signal(signal.SIGHUP)
            await served.until_replaced(old)
            if second == folder:

                async def is_copied() -> bool:
                    found = await asyncio.to_thread(run_blocking, database, status.migration)
                    return found is not None and found["files"] == 0

                await wait_until_async(is_copied, what="all files copied", timeout_seconds=60)
    finally:
        process.terminate()
        await process.wait()
    assert [*store.contents().values()] == [stored({"n": 1})]
    assert run_blocking(database, status.migration) is None
