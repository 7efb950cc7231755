"""The step upload: temporary files into the store, for servers with the mode `temporary_file`.

The step transfer has written the file as `<id>.dat` into the temporary folder, by the same
resumable upload as into a store. When it is gone, because another machine has it or somebody
deleted it, or has been changed, the download starts again.
"""

from __future__ import annotations

import hashlib

from postroad.intake.claim import Claim, claim
from postroad.intake.engine import Engine
from postroad.intake.errors import FileChanged, FileVanished, ObjectDiffers, StoreError
from postroad.intake.keys import object_key
from postroad.intake.upload import Upload
from postroad.postgres.calls import Row


def temporary_name(row: Row) -> str:
    """Return the name of a file in the temporary folder."""
    return f"{row['id']}.dat"


async def upload(engine: Engine, ids: list[int]) -> list[int]:
    """Send temporary files to the store; returns those that went on to the next step."""
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
        except StoreError as failure:
            raise FileVanished(failure.message) from None

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
    except (FileChanged, FileVanished) as failure:
        # Of the temporary file, not of the one at the source: it is fetched again.
        await engine.temporary.remove(name)
        raise ObjectDiffers(failure.message) from None
    await held.change("uploaded", [row["id"]], engine.store.name, [key], [digest])


def _same(digest: str, row: Row) -> str:
    if digest != row["file_hash"]:
        raise FileChanged(f"the temporary file of {row['filename']} differs from what was fetched")
    return digest
