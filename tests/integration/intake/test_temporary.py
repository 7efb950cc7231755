"""The way over a temporary file: what becomes of one that somebody harmed, whatever the store."""

from __future__ import annotations

import errno
import os
import random
from typing import Any

import pytest

from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.stores.folder import FolderStore, _threaded
from postroad.intake.transfer import transfer
from postroad.intake.work import abort_orphans, dispatch
from tests.integration.intake.partner import Partner, run_once, sha256, stored, work_off

MIB = 1024 * 1024


def _full(*_: object) -> str:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("size", "harm"), [(1000, "shorter"), (1000, "gone"), (11 * MIB, "hole")])
async def test_a_temporary_file_that_was_harmed_is_fetched_again(
    engine: Engine, partner: Partner, size: int, harm: str
) -> None:
    partner.change(way="temporary_file")
    data = random.Random(1).randbytes(size)
    partner.write("a.bin", data)
    await discover(engine, partner.server_id)
    (ids,) = await dispatch(engine, partner.server_id)
    await transfer(engine, ids)
    (whole,) = engine.temporary.folder.glob("*.dat")
    if harm == "gone":
        whole.unlink()
    else:
        os.truncate(whole, size // 2)
        if harm == "hole":
            os.truncate(whole, size)
    for _ in range(3):
        partner.connection.execute("update intake.imported_files set next_try_at = intake.now()")
        await work_off(engine, partner)
    assert partner.statuses == {"a.bin": "completed"}
    row = partner.file("a.bin")
    assert await stored(engine.store, row["object_key"]) == data
    assert len(partner.notices()) == 1


async def test_a_temporary_file_that_vanishes_on_the_way_gets_no_hole(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    partner.change(way="temporary_file")
    data = random.Random(1).randbytes(11 * MIB)
    partner.write("a.bin", data)
    put, calls = FolderStore.put_part, iter(range(100))

    async def deleted(store: FolderStore, key: str, upload_id: str, *part: Any) -> str:
        tag = await put(store, key, upload_id, *part)
        if next(calls) == 0:
            (store.folder / ".uploads" / upload_id).unlink()
        return tag

    monkeypatch.setattr(FolderStore, "put_part", deleted)
    await run_once(engine, partner)
    row = partner.file("a.bin")
    assert (row["status"], row["attempts"]) == ("discovered", 1)
    assert "is gone" in row["error_message"]
    partner.connection.execute("update intake.imported_files set next_try_at = intake.now()")
    await work_off(engine, partner)
    await work_off(engine, partner)
    assert partner.file("a.bin")["file_hash"] == sha256(data)
    assert partner.statuses == {"a.bin": "completed"}


async def test_a_full_temporary_folder_is_no_failure_of_the_store(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    partner.change(way="temporary_file")
    partner.write("a.bin", b"1")

    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "put_part", _threaded(_full))
        await run_once(engine, partner)
    row = partner.file("a.bin")
    assert (row["status"], row["attempts"], row["lease_token"]) == ("discovered", 0, None)
    assert "the temporary folder" in row["error_message"]
    assert row["next_try_at"] > row["updated_at"], "or it would be tried without a pause"
    assert partner.rows("select * from intake.store_state where failures > 0") == []
    (alert,) = partner.rows("select * from alerts.report")
    assert "is full" in alert["title"]
    partner.connection.execute("update intake.imported_files set next_try_at = intake.now()")
    await run_once(engine, partner)
    assert partner.statuses == {"a.bin": "completed"}
    assert partner.rows("select is_raise from alerts.report where key = %s", alert["key"])[-1] == {
        "is_raise": False
    }


async def test_a_download_into_the_temporary_folder_is_resumed(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    partner.change(way="temporary_file")
    data = random.Random(1).randbytes(26 * MIB)
    partner.write("a.bin", data)
    put, sent = FolderStore.put_part, 0

    async def failing(store: FolderStore, key: str, upload_id: str, number: int, *part: Any) -> str:
        if number == 5:
            return await _threaded(_full)(store)
        return await put(store, key, upload_id, number, *part)

    async def counted(store: FolderStore, *part: Any) -> str:
        nonlocal sent
        sent += len(part[4])
        return await put(store, *part)

    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "put_part", failing)
        await run_once(engine, partner)
    stored = partner.file("a.bin")["bytes_done"]
    assert stored > 0
    monkeypatch.setattr(FolderStore, "put_part", counted)
    partner.connection.execute("update intake.imported_files set next_try_at = intake.now()")
    (ids,) = await dispatch(engine, partner.server_id)
    assert await transfer(engine, ids) == ids
    assert sent == len(data) - stored
    await work_off(engine, partner)
    assert partner.file("a.bin")["file_hash"] == sha256(data)
    assert partner.statuses == {"a.bin": "completed"}
    assert not list(engine.temporary.folder.glob("*.dat"))


async def test_old_temporary_files_that_no_file_needs_are_removed(
    engine: Engine, partner: Partner
) -> None:
    partner.change(way="temporary_file")
    for name in ("needed.bin", "skipped.bin"):
        partner.write(name, b"1")
    await discover(engine, partner.server_id)
    for ids in await dispatch(engine, partner.server_id):
        await transfer(engine, ids)
    folder = engine.temporary.folder
    skipped = partner.file("skipped.bin")["id"]
    partner.rows("select intake.skip(%s)", [skipped])
    (folder / "4711.part").touch()
    (folder / "4712.dat").touch()
    assert await abort_orphans(engine) == 0, "they are young"
    for file in folder.glob("[0-9]*"):
        os.utime(file, (1, 1))
    assert await abort_orphans(engine) == 3
    assert [file.name for file in folder.glob("[0-9]*")] == [
        f"{partner.file('needed.bin')['id']}.dat"
    ]
