"""The exchange keeps its files in an S3-compatible store; a move is a transaction and no more."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from click.testing import CliRunner

from postroad.cli.components import SCHEMAS
from postroad.cli.main import cli
from postroad.exchange.check import check
from postroad.exchange.errors import RootForeign, RootLocked, StorageFailed, TakenOver
from postroad.exchange.files import open_storage
from postroad.exchange.objects import ObjectStorage
from postroad.exchange.server import ExchangeServer
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import TestServer, wait_until, wait_until_async
from tests.fixtures.exchange import BASE, Room
from tests.fixtures.exchange_server import ExchangeProcess
from tests.fixtures.s3 import ACCESS_KEY, SECRET_KEY, RcloneS3, S3Server


class Store:
    """A bucket, and the settings that name it."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.bucket = server.new_bucket()
        self.root = f"s3://{self.bucket}/exchange"
        self.settings = {
            "s3_endpoint": server.endpoint,
            "s3_access_key": ACCESS_KEY,
            "s3_secret_key": SECRET_KEY,
        }

    def contents(self, database: str = "sales") -> dict[str, bytes]:
        """Return the objects of a database by name."""
        prefix = f"exchange/{database}/"
        found = self.server.objects(self.bucket).items()
        return {key.removeprefix(prefix): body for key, body in found if key.startswith(prefix)}

    def put(self, name: str, body: bytes, database: str = "sales") -> None:
        key = "/".join(filter(None, ("exchange", database, name)))
        self.server.client().put_object(Bucket=self.bucket, Key=key, Body=body)

    def is_marked(self) -> bool:
        """Return whether the server that sweeps has written the marker."""
        return self.served_seconds() > 0

    def served_seconds(self) -> float:
        """Return the time in the marker."""
        found = json.loads(self.server.objects(self.bucket)["exchange/.root.json"])
        return float(found["served_seconds"])

    def age(self, name: str, *, hours: int) -> None:
        """Set the time at which an object was written."""
        assert isinstance(self.server, RcloneS3)
        at = time.time() - hours * 3600
        os.utime(self.server.objects_folder / self.bucket / "exchange/sales" / name, (at, at))

    def remove(self, name: str, database: str = "sales") -> None:
        key = "/".join(filter(None, ("exchange", database, name)))
        self.server.client().delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture
def store(s3: S3Server) -> Store:
    return Store(s3)


@pytest.fixture
async def room(database: str, store: Store) -> AsyncIterator[Room]:
    room = Room(database, store.root, **store.settings)
    await room.server.start()
    await room.server.ready()
    yield room
    await room.close()


def _folders(room: Room) -> dict[str, str]:
    rows = room.rows("select id, folder from exchange.message where state <> 'discarded'")
    return {row["id"]: row["folder"] for row in rows}


def _object(room: Room, id_: str) -> str:
    return str(room.rows("select object from exchange.message where id = %s", id_)[0]["object"])


def _checked(room: Room, **more: Any) -> list[tuple[str, str, bool]]:
    storage = open_storage(room.root, ExchangeSettings(**room.settings))
    with psycopg.connect(room.dsn) as connection:
        return [(one.kind, one.name, one.is_fixed) for one in check(connection, storage, **more)]


def _listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each database is added whose objects are listed."""
    listed: list[str] = []
    pages = ObjectStorage.pages

    def listing(storage: ObjectStorage, database: str) -> Any:
        listed.append(database)
        yield from pages(storage, database)

    monkeypatch.setattr(ObjectStorage, "pages", listing)
    return listed


async def _start_another(room: Room) -> None:
    settings = ExchangeSettings(**room.settings)
    another = ExchangeServer(room.dsn, room.root, settings, port=0)
    await another.start()
    await another.ready()


async def _until(is_so: Callable[[], bool], what: str) -> None:
    async def now() -> bool:
        return await asyncio.to_thread(is_so)

    await wait_until_async(now, what=what)


async def test_a_hand_over_changes_rows_and_never_an_object(room: Room, store: Store) -> None:
    phone, erp = room.caller("phone"), room.caller("erp")
    large = os.urandom(200_000)
    await phone.send("m1")
    await phone.send("m2", content_base64=base64.b64encode(large).decode(), media_type="image/png")
    before = store.contents()
    assert set(before.values()) == {b'{"id":"m1"}', large}
    process = await erp.begin()
    first, second = process["files"]
    assert first["body"] == {"id": "m1"}
    answer = await erp.http.get(f"{room.server.url}{second['href']}")
    assert answer.content == large
    upload = f"{room.server.url}{BASE}/processes/{process['id']}/replies/r2"
    for body in (b"draft", large):
        answer = await erp.http.put(upload, content=body)
        assert answer.json()["status"] == "OK"
    replies = [
        {"name": "r1", "recipient": "phone", "body": {"ok": True}},
        {"name": "r2", "recipient": "phone", "sha256": hashlib.sha256(large).hexdigest()},
    ]
    assert await erp.prepare(process["id"], replies) == (200, {"status": "OK"})
    assert _folders(room) == {
        "m1": "Messages", "m2": "Messages", "r1": "Prepared", "r2": "Prepared",
    }  # fmt: skip
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    await room.until_state(process["id"], "DONE")
    found = await phone.replies()
    assert [one.get("body") for one in found] == [None, {"ok": True}]
    answer = await phone.http.get(f"{room.server.url}{found[0]['href']}")
    assert answer.content == large
    for one in found:
        assert (await phone.call("DELETE", f"/messages/{one['id']}"))[0] == 200
    assert set(_folders(room).values()) == {"Log"}
    await _until(
        lambda: room.rows("select count(*) as count from exchange.move")[0]["count"] == 0,
        "no move left",
    )
    after = store.contents()
    assert before.items() <= after.items()
    # The draft that was replaced is removed.
    assert sorted(after.values()) == sorted([*before.values(), b'{"ok":true}', large])
    assert _checked(room) == []


async def test_an_aborted_process_removes_its_replies_only(room: Room, store: Store) -> None:
    phone, erp = room.caller("phone"), room.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await erp.prepare(process["id"], [{"name": "r1", "recipient": "phone", "body": 1}])
    assert len(store.contents()) == 2
    await erp.end(process["id"], "abort", error="no")
    await _until(lambda: list(store.contents()) == [_object(room, "m1")], "the reply removed")
    assert (await erp.begin())["files"][0]["body"] == {"id": "m1"}


async def test_a_repeated_message_leaves_one_object(room: Room, store: Store) -> None:
    phone = room.caller("phone")
    answers = await asyncio.gather(*(phone.send("m1") for _ in range(8)))
    assert {answer["sequence"] for answer in answers} == {1}
    await _until(lambda: list(store.contents()) == [_object(room, "m1")], "one object")


async def test_an_object_that_a_row_names_is_not_dropped(room: Room, store: Store) -> None:
    """A call whose COMMIT was in doubt and was repeated believes that its object is not needed."""
    await room.caller("phone").send("m1")
    mover = room.server.mover
    assert mover is not None
    other = mover.storage.temporary_name()
    await mover.in_thread(mover.storage.write, "sales", "", other, b"x")
    await mover.drop("sales", "Messages", [_object(room, "m1"), other])
    assert list(store.contents()) == [_object(room, "m1")]


async def test_two_servers_start_on_an_empty_bucket_and_share_it(
    database: str, store: Store
) -> None:
    room = Room(database, store.root, **store.settings)
    second = ExchangeServer(database, store.root, ExchangeSettings(**room.settings), port=0)
    try:
        await asyncio.gather(room.server.start(), second.start())
        await asyncio.gather(room.server.ready(), second.ready())
        phone, erp = room.caller("phone"), room.caller("erp")
        await phone.send("m1")
        start = {"database": "sales", "attempt": "a1"}
        answer = await erp.http.post(f"{second.url}{BASE}/processes", json=start)
        process = answer.json()["process"]
        assert process["files"][0]["body"] == {"id": "m1"}
        await erp.prepare(process["id"], [{"name": "r1", "recipient": "phone", "body": 1}])
        # The one that ends has stored what the other one still needs.
        await room.server.stop()
        answer = await erp.http.post(f"{second.url}{BASE}/processes/{process['id']}/commit")
        assert answer.json() == {"status": "OK"}
        answer = await phone.http.get(f"{second.url}{BASE}/messages")
        assert [one["body"] for one in answer.json()["items"]] == [1]
    finally:
        await second.stop()
        await room.close()


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
    room = Room(database, store.root, **store.settings, retention_interval="100ms")
    await room.server.start()
    await room.server.ready()
    try:
        await room.caller("phone").send("m1")
        await room.restart(orphan_age="1h")
        store.put("object-1.00000000.7", b"young")
        epoch = room.rows("select epoch from exchange.member")[0]["epoch"]
        for _ in range(3):
            await room.server.signals.wait("swept")
        assert "object-1.00000000.7" in store.contents()
        await room.restart(orphan_age="1ms")
        running = f"object-{epoch + 1}.00000000.7"
        later = f"object-{epoch + 100}.00000000.7"
        old = f"object-{epoch + 1}.00000000.8"
        for name in (running, later, old):
            store.put(name, b"kept")
        store.age(old, hours=25)
        gone = {"object-1.00000000.7", old}
        await _until(lambda: not gone & set(store.contents()), "the old ones removed")
        assert sorted(store.contents()) == sorted([_object(room, "m1"), running, later])
    finally:
        await room.close()


async def test_while_the_store_is_away_calls_can_be_repeated_and_nothing_is_lost(
    room: Room, store: Store
) -> None:
    phone, erp = room.caller("phone"), room.caller("erp")
    await phone.send("m1")
    store.server.kill()
    message = {"id": "m2", "database": "sales", "body": 2}
    status, problem = await phone.call("POST", "/messages", json=message)
    assert (status, problem["code"]) == (503, "exchange_storage_failed")
    start = {"database": "sales", "attempt": "a1"}
    assert (await erp.call("POST", "/processes", json=start))[0] == 503
    with pytest.raises(StorageFailed):
        _checked(room)
    store.server.start()
    assert (await phone.call("POST", "/messages", json=message))[0] == 201
    process = await erp.begin(attempt="a1")
    assert [file["id"] for file in process["files"]] == ["m1"]
    assert room.alerts() == []
    await erp.prepare(process["id"], [{"name": "r1", "recipient": "phone", "body": 1}])
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    await room.until_state(process["id"], "DONE")
    store.server.kill()
    status, problem = await phone.call("GET", "/messages")
    assert (status, problem["code"]) == (503, "exchange_storage_failed")
    store.server.start()
    assert [one["body"] for one in await phone.replies()] == [1]


async def test_check_reports_what_it_cannot_read_beside_what_it_found(
    room: Room, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = room.caller("phone")
    for id_ in ("m1", "m2"):
        await phone.send(id_)
    store.remove(_object(room, "m1"))
    unreadable = _object(room, "m2")
    digest = ObjectStorage.digest

    def failing(storage: ObjectStorage, database: str, folder: str, name: str) -> Any:
        if name == unreadable:
            raise OSError(errno.EIO, "the store reports an error")
        return digest(storage, database, folder, name)

    monkeypatch.setattr(ObjectStorage, "digest", failing)
    assert _checked(room, is_fixing=True) == [
        ("missing", "1_m1_from_phone_to_any.json", True),
        ("unreadable", "2_m2_from_phone_to_any.json", False),
    ]
    monkeypatch.undo()
    assert _checked(room) == []


async def test_while_the_bucket_is_missing_no_message_is_parked(
    room: Room, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rclone creates a missing bucket for an object that is written, such as the marker.
    await _until(store.is_marked, "the store marked by the server that sweeps")
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 1e9)
    assert isinstance(store.server, RcloneS3)
    phone, erp = room.caller("phone"), room.caller("erp")
    await phone.send("m1")
    bucket = store.server.objects_folder / store.bucket
    aside = bucket.rename(bucket.with_name(f"{store.bucket}-aside"))
    start = {"database": "sales", "attempt": "a1"}
    status, problem = await erp.call("POST", "/processes", json=start)
    assert (status, problem["code"]) == (503, "exchange_storage_failed")
    aside.rename(bucket)
    assert (await erp.begin(attempt="a1"))["files"][0]["body"] == {"id": "m1"}


async def test_check_finds_what_is_missing_changed_or_unlisted(room: Room, store: Store) -> None:
    phone, erp = room.caller("phone"), room.caller("erp")
    for id_ in ("m1", "m2", "m3"):
        await phone.send(id_)
    names = {id_: _object(room, id_) for id_ in ("m1", "m2", "m3")}
    assert _checked(room) == []
    store.remove(names["m1"])
    store.put(names["m2"], b'{"id":"m9"}')
    store.put("object-0.00000000.1", b"whose?")
    found = [
        ("missing", "1_m1_from_phone_to_any.json"),
        ("changed", "2_m2_from_phone_to_any.json"),
        ("unlisted", "object-0.00000000.1"),
    ]
    assert _checked(room) == [(*one, False) for one in found]
    assert _checked(room, is_fixing=True) == [(*one, True) for one in found]
    assert store.contents()["unlisted/object-0.00000000.1"] == b"whose?"
    assert _checked(room) == []
    process = await erp.begin()
    assert [file["id"] for file in process["files"]] == ["m3"]
    await erp.end(process["id"], "abort")
    # The sender sends a lost message again; the right content of a changed one is put back.
    await phone.send("m1")
    store.put(names["m2"], b'{"id":"m2"}')
    room.rows("select exchange.requeue(null, 'm2', 'phone', 'sales')")
    process = await erp.begin()
    assert [file["body"]["id"] for file in process["files"]] == ["m1", "m2", "m3"]
    assert _object(room, "m1") != names["m1"]
    assert _checked(room) == []


async def test_a_missing_or_changed_object_is_never_handed_out(room: Room, store: Store) -> None:
    phone, erp = room.caller("phone"), room.caller("erp")
    for id_ in ("m1", "m2", "m3"):
        await phone.send(id_)
    store.remove(_object(room, "m1"))
    store.put(_object(room, "m2"), b'{"id":"m9"}')
    process = await erp.begin()
    assert [file["id"] for file in process["files"]] == ["m3"]
    states = room.rows("select id, state, folder from exchange.message order by number")
    assert [(one["state"], one["folder"]) for one in states] == [
        ("parked", None), ("parked", "Error"), ("leased", "Messages"),
    ]  # fmt: skip
    assert len(room.alerts()) == 2


async def test_what_is_outdated_is_removed_from_the_store(room: Room, store: Store) -> None:
    phone, erp = room.caller("phone"), room.caller("erp")
    await phone.send("m1")
    await phone.send("m2", database="other")
    process = await erp.begin()
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    await room.until_state(process["id"], "DONE")
    room.rows("update exchange.message set finished_at = now() - interval '1 year' returning 1")
    await room.restart()
    assert store.contents() == {}
    assert [row["id"] for row in room.rows("select id from exchange.message")] == ["m2"]
    assert len(store.contents("other")) == 1


async def test_export_renders_the_folders_and_can_be_repeated(
    room: Room, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.settings.items():
        monkeypatch.setenv(f"POSTROAD_EXCHANGE__{name.upper()}", value)

    async def command(*arguments: str, code: int = 0) -> Any:
        given = ["--database-url", room.dsn, "exchange", *arguments, "--json"]
        result = await asyncio.to_thread(CliRunner().invoke, cli, given)
        assert result.exit_code == code, (arguments, result.output, result.exception)
        return json.loads(result.stdout)

    def files() -> dict[str, bytes]:
        found = (path for path in tmp_path.rglob("*") if path.is_file())
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in found}

    phone, erp = room.caller("phone"), room.caller("erp")
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
    store.remove(_object(room, "m1"))
    (tmp_path / "sales/Log/1_m1_from_phone_to_any.json").unlink()
    failed = (await command("export", "sales", str(tmp_path), code=1))["failed"]
    assert [one["name"] for one in failed] == ["1_m1_from_phone_to_any.json"]


async def test_a_missing_bucket_and_a_foreign_one_are_refused(
    room: Room, store: Store, s3: S3Server
) -> None:
    settings = ExchangeSettings(**room.settings)
    missing = ExchangeServer(room.dsn, "s3://no-such-bucket/x", settings, port=0)
    await missing.start()
    with pytest.raises(StorageFailed, match="there is no bucket no-such-bucket"):
        await missing.ready()
    await room.caller("phone").send("m1")
    other = ExchangeServer(room.dsn, f"s3://{s3.new_bucket()}", settings, port=0)
    await other.start()
    with pytest.raises(RootForeign):
        await other.ready()


@contextlib.contextmanager
def _copy_of(room: Room, server: TestServer) -> Iterator[str]:
    """Yield a database whose journal has the root and the runs of another one."""
    facts = "root_id, served_seconds, epoch, runs"
    (row,) = room.rows(f"select {facts} from exchange.server")
    with server.clone(*SCHEMAS) as copy:
        with psycopg.connect(copy) as connection:
            connection.execute(
                f"update exchange.server set ({facts}) = (%s, %s, %s, %s)", tuple(row.values())
            )
        yield copy


async def test_a_copy_of_the_database_does_not_use_the_same_bucket(
    room: Room, store: Store, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 0.1)
    await _until(store.is_marked, "the store marked by the server that sweeps")
    with _copy_of(room, server) as copy:
        before = store.served_seconds()
        await _until(lambda: store.served_seconds() > before + 1, "the original going on")
        second = ExchangeServer(copy, store.root, ExchangeSettings(**room.settings), port=0)
        await second.start()
        with pytest.raises(RootLocked):
            await second.ready()
    await room.restart()
    await room.caller("phone").send("m1")


async def test_a_server_whose_root_a_copy_has_taken_stops_with_an_alert(
    database: str, store: Store, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 1e9)
    room = Room(database, store.root, **store.settings)
    await room.server.start()
    await room.server.ready()
    await _until(store.is_marked, "the store marked by the server that sweeps")
    with _copy_of(room, server) as copy:
        # It starts before the original has marked the store again: both have the same facts.
        second = Room(copy, store.root, **store.settings)
        await second.server.start()
        await second.server.ready()
        monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 0.1)
        with pytest.raises(TakenOver):
            await room.server.join()
        assert room.alerts() == ["exchange/store"]
        # Not even when it is started again.
        with pytest.raises(RootLocked):
            await _start_another(room)
        await second.caller("phone").send("m1")
        await second.close()


async def test_an_empty_journal_does_not_take_the_bucket_of_another(
    room: Room, store: Store, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the other servers had stopped long ago.
    monkeypatch.setattr("postroad.exchange.objects.IN_USE_SECONDS", 0.0)
    await room.caller("phone").send("m1")
    await room.server.stop()
    with server.clone(*SCHEMAS) as other:
        second = ExchangeServer(other, store.root, ExchangeSettings(**room.settings), port=0)
        await second.start()
        with pytest.raises(RootForeign, match="the root of another journal"):
            await second.ready()
    assert len(store.contents()) == 1


async def test_a_restored_journal_keeps_the_objects_that_it_does_not_name(
    database: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 0.1)
    room = Room(database, store.root, **store.settings, retention_interval="100ms", orphan_age="1h")
    await room.server.start()
    await room.server.ready()
    try:
        await room.caller("phone").send("m1")
        await _until(store.is_marked, "the store marked by the server that sweeps")
        epoch = room.rows("select epoch from exchange.server")[0]["epoch"]
        await room.server.stop()
        # What the journal has forgotten, by the server of the next generation.
        lost = f"object-{epoch + 1}.00000000.7"
        store.put(lost, b"lost")
        store.age(lost, hours=2)
        room.rows("update exchange.server set served_seconds = 0 returning 1")
        monkeypatch.setattr("postroad.exchange.objects.IN_USE_SECONDS", 0.0)
        listed = _listings(monkeypatch)
        await room.restart()
        monkeypatch.setattr("postroad.exchange.objects.IN_USE_SECONDS", 60.0)
        assert room.alerts() == ["exchange/older"]
        await _until(lambda: len(listed) >= 2, "the store listed twice")
        assert lost in store.contents()
        assert _checked(room) == [("unlisted", lost, False)]
    finally:
        await room.close()


async def test_a_lost_or_damaged_marker_is_reported_with_what_to_write(
    room: Room, store: Store
) -> None:
    await room.caller("phone").send("m1")
    await room.server.stop()
    store.put(".root.json", b"{", "")
    with pytest.raises(RootForeign, match="cannot be read"):
        await _start_another(room)
    store.remove(".root.json", "")
    with pytest.raises(RootForeign, match="has no marker") as raised:
        await _start_another(room)
    root = room.rows("select root_id from exchange.server")[0]["root_id"]
    assert f'{{"root": "{root}"}}' in str(raised.value.hint)
    store.put(".root.json", json.dumps({"root": str(root)}).encode(), "")
    await room.restart()


async def test_a_store_that_does_not_answer_stops_neither_heartbeat_nor_timeouts_nor_the_end(
    database: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 0.1)
    room = Room(database, store.root, **store.settings)
    await room.server.start()
    await room.server.ready()
    phone, erp = room.caller("phone"), room.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await erp.prepare(process["id"], [{"name": "r1", "recipient": "phone", "body": 1}])
    store.server.suspend()
    try:
        served = "select served_seconds, exchange.now() as now from exchange.server"
        (before,) = room.rows(served)
        body = {"id": "m2", "database": "sales", "body": 2}
        sending = asyncio.create_task(phone.call("POST", "/messages", json=body))
        await _until(
            lambda: room.rows(served)[0]["served_seconds"] > before["served_seconds"] + 3,
            "the time going on",
        )
        room.rows("update exchange.process set deadline = 0 returning 1")
        await _until(lambda: room.state(process["id"]) != "READY", "the process timed out")
        stopping = asyncio.create_task(room.server.stop())
        await _until(stopping.done, "the server stopped")
        assert room.rows("select epoch from exchange.member") == []
    finally:
        store.server.resume()
    await asyncio.gather(sending, stopping, return_exceptions=True)
    await room.close()
