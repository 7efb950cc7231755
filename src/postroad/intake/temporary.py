"""The option of two steps: first a temporary file, then the store.

The temporary file is `<id>.dat` in the temporary folder; while it grows, `<id>.part`. A download
that died goes on at the end of what was synced. An upload whose temporary file is gone, because
another machine has it or somebody tidied up, or is not what was fetched, begins with the download
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from postroad.intake.engine import Engine
from postroad.intake.errors import (
    FileChanged,
    FileUnreadable,
    FileVanished,
    ObjectDiffers,
    StoreError,
    TemporaryFolderFull,
    UploadLost,
)
from postroad.intake.holding import Hold, claim
from postroad.intake.journal import Row
from postroad.intake.keys import object_key
from postroad.intake.readers import LocalReader, RemoteReader
from postroad.intake.settling import check_version, remote_path, settle
from postroad.intake.source import Source, answering
from postroad.intake.streaming import Upload

__all__ = ["download", "remove_temporary", "upload"]

CHUNK_BYTES = 8 * 1024 * 1024


def _whole(engine: Engine, row: Row) -> Path:
    return engine.temporary_folder / f"{row['id']}.dat"


def _partial(engine: Engine, row: Row) -> Path:
    return engine.temporary_folder / f"{row['id']}.part"


async def download(engine: Engine, hold: Hold, server: Row, row: Row, source: Source) -> None:
    """Fetch a file into the temporary folder, going on where a former try ended."""
    path = remote_path(server, row)
    await check_version(source, path, row)
    partial = _partial(engine, row)
    with _local_errors(partial):
        sha256, offset = await asyncio.to_thread(_begun, partial, row["filesize"])
    async with answering(row["filename"], source):
        file = await source.sftp.open(path, "rb")
    reader = RemoteReader(source, file, row["filename"])
    try:
        while offset < row["filesize"]:
            hold.check(row["id"])
            data = await reader.read(offset, min(CHUNK_BYTES, row["filesize"] - offset))
            with _local_errors(partial):
                await asyncio.to_thread(_append, partial, offset, data)
            await asyncio.to_thread(sha256.update, data)
            offset += len(data)
        await check_version(source, path, row)
    except (FileChanged, FileVanished):
        partial.unlink(missing_ok=True)
        raise
    finally:
        if not source.is_broken:
            async with answering(row["filename"], source):
                await file.close()
    with _local_errors(partial):
        await asyncio.to_thread(_finish, partial, _whole(engine, row), row["filesize"])
    await engine.journal.call("downloaded", row["id"], hold.token, sha256.hexdigest())


async def upload(engine: Engine, ids: list[int]) -> list[int]:
    """Send temporary files to the store; returns those that went on to the next step."""
    done: list[int] = []
    async with claim(engine, ids, "upload") as hold:
        try:
            for row in hold.rows:

                async def one(row: Row = row) -> None:
                    await _send(engine, hold, row)
                    done.append(row["id"])

                if not _whole(engine, row).is_file():
                    await engine.journal.call("download_again", row["id"], hold.token)
                else:
                    await settle(engine, hold, row, one)
                hold.let_go(row["id"])
        except (UploadLost, ObjectDiffers) as failure:
            await hold.give_back(failure.message)
        except StoreError as failure:
            await engine.store_failed(failure)
            await hold.give_back(failure.message)
    if done:
        await engine.store_works()
    return done


async def _send(engine: Engine, hold: Hold, row: Row) -> None:
    server = await engine.server(row["server_id"])
    key = object_key(server["name"], bytes(row["path"]), row["version"])
    reader = LocalReader(_whole(engine, row))
    digest: str
    try:
        if row["filesize"] <= engine.settings.small_bytes and not row["upload_id"]:
            data = await reader.read(0, row["filesize"])
            digest = _same(hashlib.sha256(data).hexdigest(), row)
            await engine.store.put(key, data, digest)
        else:
            sending = Upload(engine, hold, row, key)
            await sending.open()
            row["upload_id"], key = sending.upload_id, sending.key
            sha256 = None
            if not sending.is_complete:
                sha256 = await sending.send(reader)
            if sha256 is not None:
                _same(sha256, row)
            digest = _same(await sending.complete(sha256), row)
    except (FileChanged, FileVanished) as failure:
        # Of the temporary file, not of the one at the source: it is fetched again.
        await remove_temporary(engine, row)
        raise ObjectDiffers(failure.message) from None
    await engine.journal.call(
        "uploaded", [row["id"]], hold.token, engine.store.name, [key], [digest]
    )


def _same(digest: str, row: Row) -> str:
    if digest != row["file_hash"]:
        raise FileChanged(f"the temporary file of {row['filename']} is not what was fetched")
    return digest


async def remove_temporary(engine: Engine, row: Row) -> None:
    """Remove the temporary file of a file, if there is one."""
    for path in (_whole(engine, row), _partial(engine, row)):
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _begun(partial: Path, filesize: int) -> tuple[hashlib._Hash, int]:
    sha256 = hashlib.sha256()
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        size = partial.stat().st_size
    except FileNotFoundError:
        return sha256, 0
    if size > filesize:
        partial.unlink()
        return sha256, 0
    with partial.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            sha256.update(piece)
    return sha256, size


@contextlib.contextmanager
def _local_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        if failure.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TemporaryFolderFull(
                f"the temporary folder {path.parent} is full",
                hint="make room, or set intake.temporary_folder to a larger disk",
            ) from None
        raise


def _append(partial: Path, offset: int, data: bytearray) -> None:
    # Made with the first bytes only: somebody may have tidied up meanwhile, and a file with a
    # hole in it must not come of that.
    flags = os.O_WRONLY | (os.O_CREAT if offset == 0 else 0)
    try:
        descriptor = os.open(partial, flags, 0o600)
    except FileNotFoundError:
        raise FileUnreadable(f"the temporary file {partial.name} is gone") from None
    try:
        if os.fstat(descriptor).st_size < offset:
            raise FileUnreadable(f"the temporary file {partial.name} has become shorter")
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _finish(partial: Path, whole: Path, filesize: int) -> None:
    if filesize == 0:
        partial.touch(exist_ok=True)
    try:
        size = partial.stat().st_size
        if size != filesize:
            partial.unlink()
            raise FileUnreadable(f"{partial.name} has {size} bytes instead of {filesize}")
        partial.replace(whole)
    except FileNotFoundError:
        raise FileUnreadable(f"the temporary file {partial.name} is gone") from None
    descriptor = os.open(whole.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
