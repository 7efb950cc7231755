"""The exchange keeps its files in an S3-compatible store; a move is a transaction and no more."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from click.testing import CliRunner

from postroad.cli.components import SCHEMAS
from postroad.cli.main import cli
from postroad.exchange.errors import StorageFailed
from postroad.exchange.objects import ObjectStorage
from postroad.exchange.server import ExchangeServer
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import TestServer, wait_until
from tests.fixtures.exchange import BASE, LocalExchange
from tests.fixtures.exchange_server import ExchangeProcess
from tests.fixtures.s3 import RcloneS3
from tests.integration.exchange.object_store.conftest import (
    Store,
    checked,
    folders,
    object_of,
    until,
)


async def test_a_hand_over_changes_rows_and_never_an_object(
    local: LocalExchange, store: Store
) -> None:
    phone, erp = local.caller("phone"), local.caller("erp")
    large = os.urandom(200_000)
    await phone.send("m1")
    await phone.send("m2", content_base64=base64.b64encode(large).decode(), media_type="image/png")
    before = store.contents()
    assert set(before.values()) == {b'{"id":"m1"}', large}
    process = await erp.begin()
    first, second = process["files"]
    assert first["body"] == {"id": "m1"}
    answer = await erp.http.get(f"{local.server.url}{second['href']}")
    assert answer.content == large
    upload = f"{local.server.url}{BASE}/processes/{process['id']}/replies/r2"
    for body in (b"draft", large):
        answer = await erp.http.put(upload, content=body)
        assert answer.json()["status"] == "OK"
    replies = [
        {"name": "r1", "recipient": "phone", "body": {"ok": True}},
        {"name": "r2", "recipient": "phone", "sha256": hashlib.sha256(large).hexdigest()},
    ]
    assert await erp.prepare(process["id"], replies) == (200, {"status": "OK"})
    assert folders(local) == {
        "m1": "Messages", "m2": "Messages", "r1": "Prepared", "r2": "Prepared",
    }  # fmt: skip
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    await local.until_state(process["id"], "DONE")
    found = await phone.replies()
    assert [one.get("body") for one in found] == [None, {"ok": True}]
    answer = await phone.http.get(f"{local.server.url}{found[0]['href']}")
    assert answer.content == large
    for one in found:
        assert (await phone.call("DELETE", f"/messages/{one['id']}"))[0] == 200
    assert set(folders(local).values()) == {"Log"}
    await until(
        lambda: local.rows("select count(*) as count from exchange.move")[0]["count"] == 0,
        "no move left",
    )
    after = store.contents()
    assert before.items() <= after.items()
    # The draft that was replaced is removed.
    assert sorted(after.values()) == sorted([*before.values(), b'{"ok":true}', large])
    assert checked(local) == []


async def test_an_aborted_process_removes_its_replies_only(
    local: LocalExchange, store: Store
) -> None:
    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await erp.prepare(process["id"], [{"name": "r1", "recipient": "phone", "body": 1}])
    assert len(store.contents()) == 2
    await erp.end(process["id"], "abort", error="no")
    await until(lambda: list(store.contents()) == [object_of(local, "m1")], "the reply removed")
    assert (await erp.begin())["files"][0]["body"] == {"id": "m1"}


async def test_a_repeated_message_leaves_one_object(local: LocalExchange, store: Store) -> None:
    phone = local.caller("phone")
    answers = await asyncio.gather(*(phone.send("m1") for _ in range(8)))
    assert {answer["sequence"] for answer in answers} == {1}
    await until(lambda: list(store.contents()) == [object_of(local, "m1")], "one object")


async def test_an_object_that_a_row_names_is_not_dropped(
    local: LocalExchange, store: Store
) -> None:
    """A call whose COMMIT was in doubt and was repeated believes that its object is not needed."""
    await local.caller("phone").send("m1")
    mover = local.server.mover
    assert mover is not None
    other = mover.storage.temporary_name()
    await mover.in_thread(mover.storage.write, "sales", "", other, b"x")
    await mover.drop("sales", "Messages", [object_of(local, "m1"), other])
    assert list(store.contents()) == [object_of(local, "m1")]


async def test_two_servers_start_on_an_empty_bucket_and_share_it(
    database: str, store: Store
) -> None:
    local = LocalExchange(database, store.root, **store.settings)
    second = ExchangeServer(database, store.root, ExchangeSettings(**local.settings), port=0)
    try:
        await asyncio.gather(local.server.start(), second.start())
        await asyncio.gather(local.server.ready(), second.ready())
        phone, erp = local.caller("phone"), local.caller("erp")
        await phone.send("m1")
        start = {"database": "sales", "attempt": "a1"}
        answer = await erp.http.post(f"{second.url}{BASE}/processes", json=start)
        process = answer.json()["process"]
        assert process["files"][0]["body"] == {"id": "m1"}
        await erp.prepare(process["id"], [{"name": "r1", "recipient": "phone", "body": 1}])
        # The one that ends has stored what the other one still needs.
        await local.server.stop()
        answer = await erp.http.post(f"{second.url}{BASE}/processes/{process['id']}/commit")
        assert answer.json() == {"status": "OK"}
        answer = await phone.http.get(f"{second.url}{BASE}/messages")
        assert [one["body"] for one in answer.json()["items"]] == [1]
    finally:
        await second.stop()
        await local.close()


def test_a_server_that_is_killed_before_its_row_leaves_an_object_that_is_collected(
    server: TestServer, store: Store, tmp_path: Path
) -> None:
    with server.clone(*SCHEMAS) as dsn:
        settings = {name.upper(): value for name, value in store.settings.items()}
        settings |= {"RETENTION_INTERVAL": "100ms", "SWEEP_INTERVAL": "100ms"}
        exchange = ExchangeProcess(dsn, tmp_path, settings)
        exchange.root = store.root  # type: ignore[assignment]
        exchange.start()
        headers = {"Authorization": f"Bearer {exchange.token('phone')}"}

        def send(id_: str) -> httpx.Response:
            body = {"id": id_, "database": "sales", "body": {"id": id_}}
            url = f"{exchange.url}{BASE}/messages"
            return httpx.post(url, json=body, headers=headers, timeout=60)

        try:
            assert send("m1").status_code == 201
            with ThreadPoolExecutor(1) as threads, psycopg.connect(dsn) as other:
                other.execute("lock table exchange.message in access exclusive mode")
                sending = threads.submit(send, "m2")
                wait_until(lambda: len(store.contents()) == 2, what="the object of m2")
                exchange.end(signal.SIGKILL)
                # Otherwise the call that waits for the lock would still commit.
                other.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
            with pytest.raises(httpx.HTTPError):
                raise sending.exception() or AssertionError("it was answered")
            assert exchange.rows("select id from exchange.message") == [("m1",)]
            exchange._environment["POSTROAD_EXCHANGE__ORPHAN_AGE"] = "1ms"
            exchange.start()
            assert send("m2").status_code == 201
            names = exchange.rows("select object from exchange.message order by number")
            wait_until(
                lambda: sorted(store.contents()) == sorted(name for (name,) in names),
                what="the object without a row removed",
            )
        finally:
            exchange.end()


async def test_a_young_object_and_one_of_a_running_server_are_not_collected(
    database: str, store: Store
) -> None:
    local = LocalExchange(database, store.root, **store.settings, retention_interval="100ms")
    await local.server.start()
    await local.server.ready()
    try:
        await local.caller("phone").send("m1")
        await local.restart(orphan_age="1h")
        store.put("object-1.00000000.7", b"young")
        epoch = local.rows("select epoch from exchange.member")[0]["epoch"]
        for _ in range(3):
            await local.server.signals.wait("swept")
        assert "object-1.00000000.7" in store.contents()
        await local.restart(orphan_age="1ms")
        running = f"object-{epoch + 1}.00000000.7"
        later = f"object-{epoch + 100}.00000000.7"
        old = f"object-{epoch + 1}.00000000.8"
        for name in (running, later, old):
            store.put(name, b"kept")
        store.age(old, hours=25)
        gone = {"object-1.00000000.7", old}
        await until(lambda: not gone & set(store.contents()), "the old ones removed")
        assert sorted(store.contents()) == sorted([object_of(local, "m1"), running, later])
    finally:
        await local.close()


async def test_while_the_store_is_away_calls_can_be_repeated_and_nothing_is_lost(
    local: LocalExchange, store: Store
) -> None:
    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    store.server.kill()
    message = {"id": "m2", "database": "sales", "body": 2}
    status, problem = await phone.call("POST", "/messages", json=message)
    assert (status, problem["code"]) == (503, "exchange_storage_failed")
    start = {"database": "sales", "attempt": "a1"}
    assert (await erp.call("POST", "/processes", json=start))[0] == 503
    with pytest.raises(StorageFailed):
        checked(local)
    store.server.start()
    assert (await phone.call("POST", "/messages", json=message))[0] == 201
    process = await erp.begin(attempt="a1")
    assert [file["id"] for file in process["files"]] == ["m1"]
    assert local.alerts() == []
    await erp.prepare(process["id"], [{"name": "r1", "recipient": "phone", "body": 1}])
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    await local.until_state(process["id"], "DONE")
    store.server.kill()
    status, problem = await phone.call("GET", "/messages")
    assert (status, problem["code"]) == (503, "exchange_storage_failed")
    store.server.start()
    assert [one["body"] for one in await phone.replies()] == [1]


async def test_check_reports_what_it_cannot_read_beside_what_it_found(
    local: LocalExchange, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = local.caller("phone")
    for id_ in ("m1", "m2"):
        await phone.send(id_)
    store.remove(object_of(local, "m1"))
    unreadable = object_of(local, "m2")
    digest = ObjectStorage.digest

    def failing(storage: ObjectStorage, database: str, folder: str, name: str) -> Any:
        if name == unreadable:
            raise OSError(errno.EIO, "the store reports an error")
        return digest(storage, database, folder, name)

    monkeypatch.setattr(ObjectStorage, "digest", failing)
    assert checked(local, is_fixing=True) == [
        ("missing", "1_m1_from_phone_to_any.json", True),
        ("unreadable", "2_m2_from_phone_to_any.json", False),
    ]
    monkeypatch.undo()
    assert checked(local) == []


async def test_while_the_bucket_is_missing_no_message_is_parked(
    local: LocalExchange, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rclone creates a missing bucket for an object that is written, such as the marker.
    await until(store.is_marked, "the store marked by the server that sweeps")
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 1e9)
    assert isinstance(store.server, RcloneS3)
    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    bucket = store.server.objects_folder / store.bucket
    aside = bucket.rename(bucket.with_name(f"{store.bucket}-aside"))
    start = {"database": "sales", "attempt": "a1"}
    status, problem = await erp.call("POST", "/processes", json=start)
    assert (status, problem["code"]) == (503, "exchange_storage_failed")
    aside.rename(bucket)
    assert (await erp.begin(attempt="a1"))["files"][0]["body"] == {"id": "m1"}


async def test_check_finds_what_is_missing_changed_or_unlisted(
    local: LocalExchange, store: Store
) -> None:
    phone, erp = local.caller("phone"), local.caller("erp")
    for id_ in ("m1", "m2", "m3"):
        await phone.send(id_)
    names = {id_: object_of(local, id_) for id_ in ("m1", "m2", "m3")}
    assert checked(local) == []
    store.remove(names["m1"])
    store.put(names["m2"], b'{"id":"m9"}')
    store.put("object-0.00000000.1", b"whose?")
    found = [
        ("missing", "1_m1_from_phone_to_any.json"),
        ("changed", "2_m2_from_phone_to_any.json"),
        ("unlisted", "object-0.00000000.1"),
    ]
    assert checked(local) == [(*one, False) for one in found]
    assert checked(local, is_fixing=True) == [(*one, True) for one in found]
    assert store.contents()["unlisted/object-0.00000000.1"] == b"whose?"
    assert checked(local) == []
    process = await erp.begin()
    assert [file["id"] for file in process["files"]] == ["m3"]
    await erp.end(process["id"], "abort")
    # The sender sends a lost message again; the right content of a changed one is put back.
    await phone.send("m1")
    store.put(names["m2"], b'{"id":"m2"}')
    local.rows("select exchange.requeue(null, 'm2', 'phone', 'sales')")
    process = await erp.begin()
    assert [file["body"]["id"] for file in process["files"]] == ["m1", "m2", "m3"]
    assert object_of(local, "m1") != names["m1"]
    assert checked(local) == []


async def test_a_missing_or_changed_object_is_never_handed_out(
    local: LocalExchange, store: Store
) -> None:
    phone, erp = local.caller("phone"), local.caller("erp")
    for id_ in ("m1", "m2", "m3"):
        await phone.send(id_)
    store.remove(object_of(local, "m1"))
    store.put(object_of(local, "m2"), b'{"id":"m9"}')
    process = await erp.begin()
    assert [file["id"] for file in process["files"]] == ["m3"]
    states = local.rows("select id, state, folder from exchange.message order by number")
    assert [(one["state"], one["folder"]) for one in states] == [
        ("parked", None), ("parked", "Error"), ("leased", "Messages"),
    ]  # fmt: skip
    assert len(local.alerts()) == 2


async def test_what_is_outdated_is_removed_from_the_store(
    local: LocalExchange, store: Store
) -> None:
    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    await phone.send("m2", database="other")
    process = await erp.begin()
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    await local.until_state(process["id"], "DONE")
    local.rows("update exchange.message set finished_at = now() - interval '1 year' returning 1")
    await local.restart()
    assert store.contents() == {}
    assert [row["id"] for row in local.rows("select id from exchange.message")] == ["m2"]
    assert len(store.contents("other")) == 1


async def test_export_renders_the_folders_and_can_be_repeated(
    local: LocalExchange, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.settings.items():
        monkeypatch.setenv(f"POSTROAD_EXCHANGE__{name.upper()}", value)

    async def command(*arguments: str, code: int = 0) -> Any:
        given = ["--database-url", local.dsn, "exchange", *arguments, "--json"]
        result = await asyncio.to_thread(CliRunner().invoke, cli, given)
        assert result.exit_code == code, (arguments, result.output, result.exception)
        return json.loads(result.stdout)

    def files() -> dict[str, bytes]:
        found = (path for path in tmp_path.rglob("*") if path.is_file())
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in found}

    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    await phone.send("m2", content_base64="AAEC", media_type="image/png")
    assert (await command("export", "sales", str(tmp_path)))["files"] == 2
    inbox = "sales/Messages"
    written = files()
    assert written.pop(f"{inbox}/2_m2_from_phone_to_any.json")
    assert written == {
        f"{inbox}/1_m1_from_phone_to_any.json": b'{"id":"m1"}',
        f"{inbox}/2_m2_from_phone_to_any.bin": b"\x00\x01\x02",
    }
    process = await erp.begin(max_files=1)
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    # A file that was cut short by an interrupted export is written again; so is a changed one.
    (tmp_path / inbox / ".new-dead.1").write_bytes(b"half")
    (tmp_path / inbox / "2_m2_from_phone_to_any.bin").write_bytes(b"changed")
    for _ in range(2):
        await command("export", "sales", str(tmp_path))
        found = files()
        assert found["sales/Log/1_m1_from_phone_to_any.json"] == b'{"id":"m1"}'
        assert found[f"{inbox}/2_m2_from_phone_to_any.bin"] == b"\x00\x01\x02"
        assert f"{inbox}/1_m1_from_phone_to_any.json" not in found
        assert f"{inbox}/.new-dead.1" not in found
    assert (await command("check")) == []
    store.remove(object_of(local, "m1"))
    (tmp_path / "sales/Log/1_m1_from_phone_to_any.json").unlink()
    failed = (await command("export", "sales", str(tmp_path), code=1))["failed"]
    assert [one["name"] for one in failed] == ["1_m1_from_phone_to_any.json"]
