from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.errors import StoreUnavailable
from postroad.intake.stores.folder import FolderStore
from postroad.intake.transfer import transfer
from postroad.intake.work import abort_dead_uploads, abort_orphans, dispatch
from postroad.settings.intake import IntakeSettings
from postroad.testing import wait_until
from postroad.vault import Vault, new_key
from tests.fixtures.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from tests.integration.intake.partner import Partner, run_once, sha256, stored, work_off

MIB = 1024 * 1024
STRESS = bool(os.environ.get("POSTROAD_STRESS"))
# In full 2 GB; in `make test` just so much that what each kill may lose stays below the bound.
FILE_BYTES, KILLS = (2000 * MIB, 5) if STRESS else (105 * MIB, 2)
SEED = 20261115


@pytest.fixture
def key() -> str:
    return new_key()


@pytest.fixture
def vault(key: str) -> Vault:
    return Vault([key])


@pytest.fixture(params=["folder", "rclone", "moto"])
def intake_settings(request: pytest.FixtureRequest, tmp_path: Path) -> IntakeSettings:
    given: dict[str, Any] = {
        "lease": timedelta(seconds=2),
        "part_bytes": 5 * MIB,
        "small_bytes": 0,
        "parts_in_memory": 2,
        "store": str(tmp_path / "store"),
    }
    if request.param != "folder":
        server: S3Server = request.getfixturevalue("s3" if request.param == "rclone" else "moto")
        given |= {
            "store": f"s3://{server.new_bucket()}/in",
            "s3_endpoint": server.endpoint,
            "s3_access_key": ACCESS_KEY,
            "s3_secret_key": SECRET_KEY,
        }
    return IntakeSettings(**given)


async def test_a_transfer_goes_on_from_its_last_stored_part(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(SEED).randbytes(32 * MIB + 77)
    partner.write("large.bin", data)
    await discover(engine, partner.server_id)
    put_part = engine.store.put_part

    async def until_the_fourth(*arguments: Any) -> str:
        if arguments[2] >= 4:
            raise StoreUnavailable("the store went away")
        return await put_part(*arguments)

    monkeypatch.setattr(engine.store, "put_part", until_the_fourth)
    (ids,) = await dispatch(engine, partner.server_id)
    assert await transfer(engine, ids) == []
    row = partner.file("large.bin")
    assert (row["status"], row["attempts"]) == ("discovered", 0)
    assert row["error_message"] == "the store went away"
    bytes_stored = row["bytes_done"]
    assert 0 < bytes_stored <= 15 * MIB
    monkeypatch.undo()
    fetched = 0
    from postroad.intake.source import Source

    read = Source.read_range

    async def counted(source: Any, file: Any, shown: str, offset: int, size: int) -> bytearray:
        nonlocal fetched
        fetched += size
        return await read(source, file, shown, offset, size)

    monkeypatch.setattr(Source, "read_range", counted)
    await engine.works("store", engine.store.name)
    await work_off(engine, partner)
    row = partner.file("large.bin")
    assert (row["status"], row["file_hash"]) == ("completed", sha256(data))
    assert fetched == len(data) - bytes_stored
    assert len(partner.notices()) == 1
    assert await stored(engine.store, row["object_key"]) == data


async def test_a_store_that_fails_after_another_file_was_stored_counts_as_down(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first.bin", "second.bin"):
        partner.write(name, random.Random(SEED).randbytes(6 * MIB))
    await discover(engine, partner.server_id)
    put_part = engine.store.put_part
    stored: set[str] = set()

    async def only_the_first(*arguments: Any) -> str:
        stored.add(arguments[0])
        if len(stored) > 1:
            raise StoreUnavailable("the store went away")
        return await put_part(*arguments)

    monkeypatch.setattr(engine.store, "put_part", only_the_first)
    batches = await dispatch(engine, partner.server_id)
    assert len(await transfer(engine, [one for ids in batches for one in ids])) == 1
    assert partner.rows("select failures from intake.store_state") == [{"failures": 1}]


async def test_an_upload_that_was_completed_and_not_noted_is_not_sent_again(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(SEED).randbytes(12 * MIB)
    partner.write("large.bin", data)
    await discover(engine, partner.server_id)
    complete = engine.store.complete

    async def die_after(*arguments: Any) -> None:
        await complete(*arguments)
        raise StoreUnavailable("the worker died here")

    monkeypatch.setattr(engine.store, "complete", die_after)
    (ids,) = await dispatch(engine, partner.server_id)
    await transfer(engine, ids)
    monkeypatch.undo()

    async def refuse(*arguments: Any) -> str:
        raise AssertionError("a part was sent again")

    monkeypatch.setattr(engine.store, "put_part", refuse)
    await engine.works("store", engine.store.name)
    await work_off(engine, partner)
    row = partner.file("large.bin")
    assert (row["status"], row["file_hash"]) == ("completed", sha256(data))


async def test_an_upload_that_the_store_has_lost_begins_anew(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(SEED).randbytes(18 * MIB)
    partner.write("large.bin", data)
    await discover(engine, partner.server_id)

    async def away(*arguments: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(engine.store, "complete", away)
    (ids,) = await dispatch(engine, partner.server_id)
    await transfer(engine, ids)
    monkeypatch.undo()
    row = partner.file("large.bin")
    await engine.store.abort(row["object_key"], row["upload_id"])
    await engine.works("store", engine.store.name)
    for _ in range(3):
        partner.connection.execute("update intake.imported_files set next_try_at = now()")
        await work_off(engine, partner)
    row = partner.file("large.bin")
    assert (row["status"], row["file_hash"]) == ("completed", sha256(data))


async def test_uploads_that_nobody_will_complete_are_aborted(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from postroad.intake import operations

    partner.write("large.bin", random.Random(SEED).randbytes(12 * MIB))
    await discover(engine, partner.server_id)

    async def away(*arguments: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(engine.store, "complete", away)
    (ids,) = await dispatch(engine, partner.server_id)
    await transfer(engine, ids)
    partner.run(operations.skip, ids)
    # One that belongs to no file at all, of a worker that died before it could note it.
    await engine.store.begin("nobody/knows")
    assert len(await engine.store.open_uploads()) == 2
    assert await abort_dead_uploads(engine) == 1
    assert partner.file("large.bin")["upload_id"] is None
    engine.settings = engine.settings.model_copy(update={"orphan_age": timedelta(0)})
    assert await abort_orphans(engine) == 1
    assert await engine.store.open_uploads() == []


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(900)
async def test_a_worker_killed_again_and_again_fetches_hardly_more_than_the_file(
    engine: Engine, partner: Partner, database: str, key: str
) -> None:
    if not isinstance(engine.store, FolderStore) and not STRESS:
        pytest.skip("into S3 with make stress; that S3 uploads go on is tested above")
    source = partner.folder / "large.bin"
    chunks = random.Random(SEED)
    import hashlib

    digest = hashlib.sha256()
    with source.open("wb") as file:
        for _ in range(FILE_BYTES // MIB):
            chunk = chunks.randbytes(MIB)
            digest.update(chunk)
            file.write(chunk)
    await discover(engine, partner.server_id)
    given = json.dumps(
        {
            "dsn": database,
            "key": key,
            "settings": engine.settings.model_dump(mode="json")
            | {
                "s3_access_key": ACCESS_KEY,
                "s3_secret_key": SECRET_KEY,
                **_durations(engine.settings),
            },
            "server": partner.server_id,
        }
    )
    fetched = 0
    for kill in range(KILLS + 1):
        process = subprocess.Popen(  # noqa: ASYNC220 - killed below, nobody waits meanwhile
            [sys.executable, "-m", "tests.integration.intake.fetcher"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(given)
        process.stdin.close()
        wanted = FILE_BYTES * (kill + 1) // (KILLS + 1)
        lines = iter(process.stdout.readline, "")
        last = 0
        for line in lines:
            last = int(line)
            if kill < KILLS and partner.file("large.bin")["bytes_done"] >= wanted:
                process.send_signal(signal.SIGKILL)
                break
        last = max([last, *(int(line) for line in lines)])
        process.wait()
        process.stdout.close()
        fetched += last
        assert process.returncode == (-signal.SIGKILL if kill < KILLS else 0)
        if kill < KILLS:
            # The lease of the dead ends by itself.
            wait_until(
                lambda: (
                    not partner.rows(
                        "select from intake.imported_files where lease_until > clock_timestamp()"
                    )
                ),
                what="lease ended",
            )
    await work_off(engine, partner)
    row = partner.file("large.bin")
    assert (row["status"], row["file_hash"]) == ("completed", digest.hexdigest())
    assert FILE_BYTES <= fetched <= 1.2 * FILE_BYTES
    assert len(partner.notices()) == 1


def _durations(settings: IntakeSettings) -> dict[str, str]:
    from postroad.settings import shown_duration

    return {name: shown_duration(value) for name, value in settings if isinstance(value, timedelta)}


async def test_the_way_over_a_temporary_file_gives_the_same(
    engine: Engine, partner: Partner
) -> None:
    partner.change(way="temporary_file")
    contents = {"empty": b"", "small": b"x" * 1000, "large": random.Random(1).randbytes(11 * MIB)}
    for name, data in contents.items():
        partner.write(name, data)
    await run_once(engine, partner)
    await work_off(engine, partner)
    assert partner.statuses == dict.fromkeys(contents, "completed")
    for name, data in contents.items():
        row = partner.file(name)
        assert row["file_hash"] == sha256(data)
        assert await stored(engine.store, row["object_key"]) == data
    assert [path.name for path in engine.temporary.folder.glob("*.dat")] == []
    assert len(partner.notices()) == len(contents)
