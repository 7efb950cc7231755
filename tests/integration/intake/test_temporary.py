"""The way over a temporary file: what becomes of one that somebody harmed, whatever the store."""

from __future__ import annotations

import errno
import os
import random

import pytest

from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.stores.folder import FolderStore
from postroad.intake.transfer import transfer
from postroad.intake.work import dispatch
from tests.integration.intake.partner import Partner, run_once, sha256, work_off

MIB = 1024 * 1024


async def _read(engine: Engine, key: str) -> bytes:
    return b"".join([piece async for piece in engine.store.read(key)])


@pytest.mark.parametrize(("size", "harm"), [(1000, "shorter"), (1000, "gone"), (11 * MIB, "hole")])
async def test_a_temporary_file_that_was_harmed_is_fetched_again(
    engine: Engine, partner: Partner, size: int, harm: str
) -> None:
    partner.change(way="temporary_file")
    data = random.Random(1).randbytes(size)
    partner.write("a.bin", data)
    await discover(engine, partner.server_id)
    (ids,) = (await dispatch(engine, partner.server_id)).transfers
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
    assert await _read(engine, row["object_key"]) == data
    assert len(partner.notices()) == 1


async def test_a_temporary_file_that_vanishes_on_the_way_gets_no_hole(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    partner.change(way="temporary_file")
    data = random.Random(1).randbytes(11 * MIB)
    partner.write("a.bin", data)
    put, calls = FolderStore._put_part, iter(range(100))

    def deleted(store: FolderStore, upload_id: str, offset: int, piece: bytearray) -> None:
        put(store, upload_id, offset, piece)
        if next(calls) == 0:
            store._partial(upload_id).unlink()

    monkeypatch.setattr(FolderStore, "_put_part", deleted)
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

    def full(store: FolderStore, upload_id: str, offset: int, piece: bytearray) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "_put_part", full)
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
    data = random.Random(1).randbytes(16 * MIB)
    partner.write("a.bin", data)
    put, written = FolderStore._put_part, []

    def failing(store: FolderStore, upload_id: str, offset: int, piece: bytearray) -> None:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        put(store, upload_id, offset, piece)
        written.append(offset)

    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "_put_part", failing)
        await run_once(engine, partner)
    stored = partner.file("a.bin")["bytes_done"]
    assert stored == 5 * MIB

    def counted(store: FolderStore, upload_id: str, offset: int, piece: bytearray) -> None:
        put(store, upload_id, offset, piece)
        written.append(offset)

    monkeypatch.setattr(FolderStore, "_put_part", counted)
    partner.connection.execute("update intake.imported_files set next_try_at = intake.now()")
    (ids,) = (await dispatch(engine, partner.server_id)).transfers
    assert await transfer(engine, ids) == ids
    assert len(written) == len(set(written)), "the part that was stored was not fetched again"
    await work_off(engine, partner)
    assert partner.file("a.bin")["file_hash"] == sha256(data)
    assert partner.statuses == {"a.bin": "completed"}
    assert not list(engine.temporary.folder.glob("*.dat"))
