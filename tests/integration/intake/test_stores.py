from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from postroad.intake import StoreFull, StoreRefused, StoreUnavailable, operations
from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.stores import Store, open_store
from postroad.intake.stores.folder import FolderStore
from postroad.intake.stores.part import part_size_for
from postroad.settings.intake import IntakeSettings
from tests.fixtures.processes import free_port
from tests.fixtures.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from tests.integration.intake.partner import Partner, run_once, sha256, stored, work_off

MIB = 1024 * 1024


def _settings(endpoint: str, secret: str = SECRET_KEY) -> IntakeSettings:
    keys = {"s3_access_key": ACCESS_KEY, "s3_secret_key": secret}
    return IntakeSettings.model_validate({"s3_endpoint": endpoint, **keys})


@pytest.fixture(params=["folder", "rclone", "moto"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "folder":
        opened = open_store(f"file://{tmp_path}/store", IntakeSettings())
    else:
        server = request.getfixturevalue("s3" if request.param == "rclone" else "moto")
        opened = open_store(f"s3://{server.new_bucket()}/some/prefix", _settings(server.endpoint))
    yield opened
    await opened.close()


@pytest.mark.parametrize("key", ["acme/a.csv", "acme/caf%E9 +&=@.csv", "acme/\u043e\u0442~2"])
async def test_a_small_object_is_there_whole(store: Store, key: str) -> None:
    assert await store.size(key) is None
    for data in (b"", b"x" * 70_000):
        await store.put(key, data, sha256(data))
        assert await store.size(key) == len(data)
        assert await stored(store, key) == data


async def test_an_object_of_parts_appears_when_it_is_completed(store: Store) -> None:
    import hashlib

    from postroad.intake.stores import Part

    data = os.urandom(11 * MIB)
    upload_id = await store.begin("acme/large")
    parts = []
    for number, start in enumerate(range(0, len(data), 5 * MIB), 1):
        piece = bytearray(data[start : start + 5 * MIB])
        digest = hashlib.sha256(piece).digest()
        etag = await store.put_part("acme/large", upload_id, number, start, piece, digest)
        parts.append(Part(number, len(piece), etag))
    assert await store.size("acme/large") is None
    assert [one.upload_id for one in await store.open_uploads()] == [upload_id]
    at_store = await store.parts("acme/large", upload_id)
    assert at_store is None or [part.size for part in at_store] == [part.size for part in parts]
    await store.complete("acme/large", upload_id, parts)
    assert await stored(store, "acme/large") == data
    assert await store.open_uploads() == []
    await store.abort("acme/large", upload_id)


async def test_a_wrong_secret_and_a_missing_bucket_are_refused(s3: S3Server) -> None:
    wrong = open_store(f"s3://{s3.new_bucket()}", _settings(s3.endpoint, "wrong-secret"))
    with pytest.raises(StoreRefused):
        await wrong.put("a", b"1", sha256(b"1"))
    missing = open_store("s3://no-such-bucket", _settings(s3.endpoint))
    with pytest.raises(StoreRefused):
        await missing.begin("a")
    await wrong.close()
    await missing.close()


async def test_a_file_in_the_place_of_a_folder_fails_alone(
    engine: Engine, partner: Partner
) -> None:
    partner.change(max_depth=2)
    big = b"2" * (9 * MIB)
    partner.write("data", b"1")
    partner.write("other/big.bin", big)
    await run_once(engine, partner)
    # Both change: what was a file is a folder, and what was a folder is a file.
    (partner.folder / "data").unlink()
    (partner.folder / "other" / "big.bin").unlink()
    (partner.folder / "other").rmdir()
    partner.write("data/small.csv", b"3")
    partner.write("data/big.bin", big)
    partner.write("other", b"4")
    for number in range(5):
        partner.write(f"z{number}.csv", b"5")
    await run_once(engine, partner)
    failed = {"data/small.csv", "data/big.bin", "other"}
    assert {name for name, status in partner.statuses.items() if status != "completed"} == failed
    for name in failed:
        row = partner.file(name)
        assert (row["status"], row["upload_id"]) == ("failed", None)
        assert "cannot keep" in row["error_message"]
    assert not partner.rows("select * from intake.store_state where failures > 0")
    # Somebody makes room, and lets it be tried again.
    (Path(engine.store.name.removeprefix("file://")) / partner.server["name"] / "data").unlink()
    partner.run(operations.retry, [partner.file("data/big.bin")["id"]])
    await work_off(engine, partner)
    assert partner.statuses["data/big.bin"] == "completed"


async def test_a_store_that_does_not_answer_is_unavailable() -> None:
    away = open_store("s3://bucket", _settings(f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(StoreUnavailable):
        await away.put("a", b"1", sha256(b"1"))
    await away.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of eight megabytes."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True
    )
    if made.returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_disk_at_the_store_is_told_and_waited_for(
    engine: Engine, partner: Partner, tiny_disk: Path
) -> None:
    engine.store = open_store(f"file://{tiny_disk}/store", IntakeSettings())
    filler = tiny_disk / "filler"
    filler.write_bytes(b"x" * 6 * MIB)
    partner.write("small.csv", b"x" * 900_000)
    partner.write("large.bin", os.urandom(4 * MIB))
    await discover(engine, partner.server_id)
    for _ in range(3):
        await work_off(engine, partner)
        partner.connection.execute("update intake.store_state set retry_at = null")
    row = partner.file("large.bin")
    assert (row["status"], row["attempts"]) == ("discovered", 0)
    assert "is full: No space left on device" in row["error_message"]
    state = partner.rows("select * from intake.store_state")[0]
    assert state["failures"] > 0
    assert "is full" in state["problem"]
    titles = [one["title"] for one in partner.rows("select title from alerts.report")]
    assert titles.count("The store of the intake cannot be used") == 1
    filler.unlink()
    await work_off(engine, partner)
    assert partner.statuses == {"small.csv": "completed", "large.bin": "completed"}
    assert partner.rows("select failures from intake.store_state") == [{"failures": 0}]


async def test_a_full_disk_behind_an_s3_server_is_told_as_full(
    tiny_disk: Path, tmp_path: Path
) -> None:
    from tests.fixtures.s3 import RcloneS3

    class OnTinyDisk(RcloneS3):
        @property
        def objects_folder(self) -> Path:
            folder = tiny_disk / "objects"
            folder.mkdir(exist_ok=True)
            return folder

    server = OnTinyDisk("tiny", tmp_path / "server")
    server.start()
    try:
        store = open_store(f"s3://{server.new_bucket()}", _settings(server.endpoint))
        data = os.urandom(12 * MIB)
        with pytest.raises((StoreFull, StoreUnavailable)) as failed:
            await store.put("large", data, sha256(data))
        assert "no space left on device" in failed.value.message.lower() or isinstance(
            failed.value, StoreUnavailable
        )
        await store.close()
    finally:
        server.kill()


def test_parts_grow_where_ten_thousand_would_not_do() -> None:
    assert part_size_for(1, 8 * MIB) == 8 * MIB
    assert part_size_for(78 * 1024 * MIB, 8 * MIB) == 8 * MIB
    assert part_size_for(79 * 1024 * MIB, 8 * MIB) == 16 * MIB
    assert -(-5 * 1024 * 1024 * MIB // part_size_for(5 * 1024 * 1024 * MIB, 8 * MIB)) <= 10_000


def test_secrets_of_the_settings_are_not_shown() -> None:
    settings = IntakeSettings(s3_secret_key="planted-secret-8264")
    assert "planted" not in repr(settings)


async def test_a_key_that_an_s3_store_refuses_says_why_and_what_to_do(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("s3://bucket", _settings("http://127.0.0.1:9"))
    answer = {"Error": {"Code": "XMinioParentIsObject", "Message": "in the way"}}

    async def put(key: str, data: bytes, digest: str) -> None:
        raise store._named(ClientError(answer, "PutObject"))  # type: ignore[union-attr,arg-type]

    monkeypatch.setattr(engine.store, "put", put)
    partner.write("a.csv", b"1")
    await run_once(engine, partner)
    row = partner.file("a.csv")
    assert row["status"] == "failed"
    assert "in the way; remove what is in its place" in row["error_message"]
    await store.close()


async def test_a_file_that_is_removed_while_old_files_are_listed_is_left_out(
    tmp_path: Path,
) -> None:
    # A link to nothing fails like a file that is removed between listing and reading.
    (tmp_path / "7.dat").symlink_to(tmp_path / "gone")
    (tmp_path / "8.dat").touch()
    found = await FolderStore(tmp_path).old_files(datetime.now(UTC) + timedelta(hours=1), (".dat",))
    assert found == ["8.dat"]
