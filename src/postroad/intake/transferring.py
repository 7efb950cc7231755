"""The step transfer: files from their source into the store, or into a temporary file.

```
discovered ──claim──> downloading ──┬─ stream ────────> uploaded_to_minio
                                    └─ temporary file ─> downloaded
   ▲                      │
   └── source or store away, worker died, failed try ──> failed after the last one
                          └── gone: vanished · changed: superseded
```

Every file is looked at before its first byte and after its last one: size and mtime must be those
of the version that was discovered.
"""

from __future__ import annotations

from datetime import timedelta

from postroad.intake.engine import Engine
from postroad.intake.errors import (
    FileChanged,
    FileVanished,
    ObjectDiffers,
    SourceError,
    StoreError,
    TemporaryFolderFull,
    UploadLost,
)
from postroad.intake.holding import Hold, claim
from postroad.intake.journal import Row
from postroad.intake.keys import object_key
from postroad.intake.readers import RemoteReader
from postroad.intake.settling import check_version, remote_path, settle
from postroad.intake.small import transfer_small
from postroad.intake.source import Source, answering
from postroad.intake.streaming import Upload
from postroad.intake.temporary import download

__all__ = ["transfer"]

# Whoever makes room need not wait longer than this.
TEMPORARY_FOLDER_PAUSE = timedelta(seconds=30)


async def transfer(engine: Engine, ids: list[int]) -> list[int]:
    """Fetch files; returns those that went on to the next step.

    What concerns a single file is noted with it. A source or store that is away gives the files
    back and is noted; nothing is raised for it.
    """
    async with claim(engine, ids, "transfer") as hold:
        by_server: dict[int, list[Row]] = {}
        for row in hold.rows:
            by_server.setdefault(row["server_id"], []).append(row)
        done: list[int] = []
        for server_id, rows in by_server.items():
            server = await engine.server(server_id)
            try:
                async with engine.lend(server) as source:
                    done += await _fetch(engine, hold, server, rows, source)
            except SourceError as failure:
                await engine.server_failed(server, failure)
                await hold.give_back(failure.message)
            except TemporaryFolderFull as failure:
                await engine.temporary_folder_full(failure)
                await hold.give_back(failure.message, TEMPORARY_FOLDER_PAUSE)
            except (UploadLost, ObjectDiffers) as failure:
                await hold.give_back(failure.message)
            except StoreError as failure:
                await engine.store_failed(failure)
                await hold.give_back(failure.message)
        if done:
            await engine.store_works()
        return done


async def _fetch(
    engine: Engine, hold: Hold, server: Row, rows: list[Row], source: Source
) -> list[int]:
    small: list[Row] = []
    large: list[Row] = []
    for row in rows:
        is_small = row["filesize"] <= engine.settings.small_bytes and not row["upload_id"]
        (small if is_small and server["way"] == "stream" else large).append(row)
    done = await transfer_small(engine, hold, server, small, source) if small else []
    for row in large:

        async def one(row: Row = row) -> None:
            if server["way"] == "temporary_file":
                await download(engine, hold, server, row, source)
                await engine.temporary_folder_works()
            else:
                await _stream(engine, hold, server, row, source)
            done.append(row["id"])

        await settle(engine, hold, row, one)
        hold.let_go(row["id"])
    return done


async def _stream(engine: Engine, hold: Hold, server: Row, row: Row, source: Source) -> None:
    path = remote_path(server, row)
    await check_version(source, path, row)
    key = object_key(server["name"], bytes(row["path"]), row["version"])
    upload = Upload(engine, hold, row, key)
    await upload.open()
    row["upload_id"] = upload.upload_id
    sha256: str | None = None
    try:
        if not upload.is_complete:
            async with answering(row["filename"], source):
                file = await source.sftp.open(path, "rb")
            try:
                sha256 = await upload.send(RemoteReader(source, file, row["filename"]))
            finally:
                if not source.is_broken:
                    async with answering(row["filename"], source):
                        await file.close()
            await check_version(source, path, row)
    except (FileChanged, FileVanished):
        await upload.forget()
        raise
    digest = await upload.complete(sha256)
    hold.check(row["id"])
    await engine.journal.call(
        "uploaded", [row["id"]], hold.token, engine.store.name, [upload.key], [digest]
    )
