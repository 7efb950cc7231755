"""The steps transfer and upload: files from their source into the store, or by a temporary file.

```
discovered ──claim──> downloading ──┬─ stream ────────────────────────────> uploaded_to_minio
                                    └─ downloaded ──> uploading_to_minio ────┘
   ▲                      │
   └── source or store down, worker lost, failed attempt ──> failed after the last one
                          └── gone: vanished · changed: superseded
```

Size and mtime must be those of the discovered version. They are checked before the first byte of a
large file and after its last one, and after reading a small file. Small files are stored with one
request each, several in flight on one connection, and recorded in batches.

A temporary file is written and sent by the same resumable upload. If it was changed, or is missing
because another machine has it or it was deleted, the download starts again.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from typing import Any, cast

from postroad.intake import errors
from postroad.intake.claim import Claim, claim
from postroad.intake.engine import Engine
from postroad.intake.keys import object_key, temporary_name
from postroad.intake.source import Source, answering, check_version, remote_path, same_version
from postroad.intake.upload import Upload, task_group
from postroad.postgres.calls import Row

RECORD_BATCH = 50
# Every server returns this much in one response.
ONE_READ_BYTES = 32 * 1024


async def transfer(engine: Engine, ids: list[int]) -> list[int]:
    """Fetch files; returns those that reached the next step. Failures are recorded, not raised.

    The files of a source or store that is down are given back.
    """
    async with claim(engine, ids, "transfer") as held:
        async for server, rows in engine.by_server(held.rows):
            try:
                async with engine.lend(server) as source:
                    await _fetch(held, server, rows, source)
            except errors.SourceError as failure:
                await held.give_back(failure.message)
    return held.done


async def _fetch(held: Claim, server: Row, rows: list[Row], source: Source) -> None:
    engine = held.engine
    is_streamed = server["way"] == "stream"
    small: list[Row] = []
    large: list[Row] = []
    for row in rows:
        is_begun = row["upload_id"] and row["store"] == engine.store.name
        is_small = row["filesize"] <= engine.settings.small_bytes and not is_begun
        (small if is_small and is_streamed else large).append(row)
    await _store_small(held, server, small, source)
    for row in large:
        await held.finish(row, _stream if is_streamed else _download, held, server, source)


async def _stream(row: Row, held: Claim, server: Row, source: Source) -> None:
    store = held.engine.store
    key = object_key(server["name"], bytes(row["path"]), row["version"])
    upload = Upload(held, store, row, key)
    digest = await _copy(upload, server, source)
    held.check(row["id"])
    await held.change("uploaded", [row["id"]], store.name, [upload.key], [digest])


async def _download(row: Row, held: Claim, server: Row, source: Source) -> None:
    engine = held.engine
    upload = Upload(held, engine.temporary, row, temporary_name(row))
    try:
        digest = await _copy(upload, server, source)
    except errors.StoreFull:
        raise errors.TemporaryFolderFull(
            f"the temporary folder {engine.temporary.folder} is full",
            hint="free disk space, or set intake.temporary_folder to a larger disk",
        ) from None
    except (errors.StoreRefused, errors.StoreUnavailable) as failure:
        # The temporary folder has failed, not the store.
        raise errors.FileUnreadable(failure.message) from None
    await held.change("downloaded", row["id"], digest)
    await engine.temporary_folder_works()


async def _copy(upload: Upload, server: Row, source: Source) -> str:
    row = upload.row
    path = remote_path(server, row)
    await check_version(source, path, row)
    await upload.open()
    sha256: str | None = None
    try:
        if not upload.is_complete:
            async with source.opened(path, row["filename"]) as file:
                sha256 = await upload.send(partial(source.read_range, file, row["filename"]))
            await check_version(source, path, row)
    except (errors.FileChanged, errors.FileVanished):
        await upload.forget()
        raise
    return await upload.complete(sha256)


async def _store_small(held: Claim, server: Row, rows: list[Row], source: Source) -> None:
    engine = held.engine
    waiting = list(reversed(rows))
    # Files that are stored but not recorded: id, key, sha256. Their leases are still held.
    stored: list[tuple[int, str, str]] = []

    async def record() -> None:
        ids, keys, hashes = (list(column) for column in zip(*stored, strict=True))
        stored.clear()
        held.done.extend(await held.change("uploaded", ids, engine.store.name, keys, hashes))
        for file_id in ids:
            held.holder.release(file_id)

    async def store(row: Row) -> None:
        held.check(row["id"])
        async with answering(row["filename"], source):
            data, found = await _read(source, remote_path(server, row), row["filesize"])
        same_version(found, row)
        if len(data) != row["filesize"]:
            raise errors.FileChanged(f"{row['filename']} is shorter than its reported size")
        held.check(row["id"])
        key = object_key(server["name"], bytes(row["path"]), row["version"])
        digest = hashlib.sha256(data).hexdigest()
        await engine.store.put(key, data, digest)
        stored.append((row["id"], key, digest))

    async def carry() -> None:
        while waiting:
            await held.attempt(waiting.pop(), store)
            if len(stored) >= RECORD_BATCH:
                await record()

    try:
        async with task_group() as tasks:
            for _ in range(min(engine.settings.pipeline, len(rows))):
                tasks.create_task(carry())
    finally:
        # Stored files are recorded even if other files have failed.
        if stored:
            await record()


async def _read(source: Source, path: bytes, size: int) -> tuple[bytes | bytearray, Any]:
    """Read a file, then its attributes by the same handle: those of the version that was read."""
    file = await source.sftp.open(path, "rb", block_size=0)
    if 0 < size <= ONE_READ_BYTES:
        piece, found, _ = await asyncio.gather(file.read(size, 0), file.stat(), file.close())
        if len(piece) == size:
            return cast("bytes", piece), found
        file = await source.sftp.open(path, "rb", block_size=0)
    data = bytearray()
    while len(data) < size:
        piece = await file.read(size - len(data), len(data))
        if not piece:
            break
        data += cast("bytes", piece)
    found, _ = await asyncio.gather(file.stat(), file.close())
    return data, found


async def upload(engine: Engine, ids: list[int]) -> list[int]:
    """Send temporary files to the store; returns those that reached the next step."""
    async with claim(engine, ids, "upload") as held:
        for row in held.rows:
            if await engine.temporary.size(temporary_name(row)) is None:
                await held.change("download_again", row["id"])
                held.holder.release(row["id"])
            else:
                await held.finish(row, _send, held)
    return held.done


async def _send(row: Row, held: Claim) -> None:
    engine = held.engine
    server = await engine.server(row["server_id"])
    key, name = object_key(server["name"], bytes(row["path"]), row["version"]), temporary_name(row)

    async def read(offset: int, size: int) -> bytes:
        try:
            return await engine.temporary.read_range(name, offset, size)
        except errors.StoreError as failure:
            raise errors.FileVanished(failure.message) from None

    try:
        if row["filesize"] <= engine.settings.small_bytes and not row["upload_id"]:
            data = await read(0, row["filesize"])
            digest = _same(hashlib.sha256(data).hexdigest(), row)
            await engine.store.put(key, data, digest)
        else:
            sending = Upload(held, engine.store, row, key)
            await sending.open()
            sha256 = None if sending.is_complete else await sending.send(read)
            if sha256 is not None:
                _same(sha256, row)
            digest, key = _same(await sending.complete(sha256), row), sending.key
    except (errors.FileChanged, errors.FileVanished) as failure:
        # The temporary file has changed, not the one at the source: it is fetched again.
        await engine.temporary.remove(name)
        raise errors.ObjectDiffers(failure.message) from None
    await held.change("uploaded", [row["id"]], engine.store.name, [key], [digest])


def _same(digest: str, row: Row) -> str:
    if digest != row["file_hash"]:
        raise errors.FileChanged(
            f"the temporary file of {row['filename']} differs from what was fetched"
        )
    return digest
