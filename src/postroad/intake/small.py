"""Many small files over one connection: several in flight, their ends noted together."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any, cast

from postroad.intake.engine import Engine
from postroad.intake.errors import FileChanged
from postroad.intake.holding import Hold
from postroad.intake.journal import Row
from postroad.intake.keys import object_key
from postroad.intake.settling import remote_path, same_version, settle
from postroad.intake.source import Source, answering, attributes_of
from postroad.intake.together import together

__all__ = ["transfer_small"]

NOTED_TOGETHER = 50
# What every server gives in one answer.
ONE_READ_BYTES = 32 * 1024


async def transfer_small(
    engine: Engine, hold: Hold, server: Row, rows: list[Row], source: Source
) -> list[int]:
    """Fetch small files and store each by one call; returns those that were stored."""
    batch = _Batch(engine, hold, server, source, waiting=list(reversed(rows)))
    try:
        async with together() as tasks:
            for _ in range(min(engine.settings.pipeline, len(rows))):
                tasks.create_task(batch.carry())
    finally:
        # What is in the store is noted, whatever happened to the others.
        await batch.note(1)
    return batch.done


@dataclass(slots=True)
class _Batch:
    engine: Engine
    hold: Hold
    server: Row
    source: Source
    waiting: list[Row]
    # In the store and not noted yet: id, key, sha256. Their leases are held on.
    stored: list[tuple[int, str, str]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    noting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def carry(self) -> None:
        """Take files until there are none left."""
        while self.waiting:
            row = self.waiting.pop()

            async def one(row: Row = row) -> None:
                self.stored.append(await self._fetch(row))

            await settle(self.engine, self.hold, row, one)
            await self.note(NOTED_TOGETHER)

    async def note(self, least: int) -> None:
        """Note what was stored, by one call, once there is enough of it."""
        if len(self.stored) < least:
            return
        # The critical section: each stored file is noted by one task only.
        async with self.noting:
            batch, self.stored = self.stored, []
            if not batch:
                return
            ids, keys, hashes = (list(column) for column in zip(*batch, strict=True))
            self.done += await self.engine.journal.call(
                "uploaded", ids, self.hold.token, self.engine.store.name, keys, hashes
            )
            for file_id in ids:
                self.hold.let_go(file_id)

    async def _fetch(self, row: Row) -> tuple[int, str, str]:
        self.hold.check(row["id"])
        path, size = remote_path(self.server, row), row["filesize"]
        async with answering(row["filename"], self.source):
            data, found = await self._read(path, size)
        same_version(attributes_of(found), row)
        if len(data) != size:
            raise FileChanged(f"{row['filename']} is shorter than it says")
        self.hold.check(row["id"])
        key = object_key(self.server["name"], bytes(row["path"]), row["version"])
        digest = hashlib.sha256(data).hexdigest()
        await self.engine.store.put(key, data, digest)
        return row["id"], key, digest

    async def _read(self, path: bytes, size: int) -> tuple[bytes | bytearray, Any]:
        """Read a file and look at it afterwards, by its handle: at what was read."""
        sftp = self.source.sftp
        file = await sftp.open(path, "rb", block_size=0)
        if 0 < size <= ONE_READ_BYTES:
            # All asked at once: of one handle a server answers in order, so the look is the later.
            piece, found, _ = await asyncio.gather(file.read(size, 0), file.stat(), file.close())
            if len(piece) == size:
                return cast("bytes", piece), found
            file = await sftp.open(path, "rb", block_size=0)
        data = bytearray()
        while len(data) < size:
            piece = await file.read(size - len(data), len(data))
            if not piece:
                break
            data += cast("bytes", piece)
        found, _ = await asyncio.gather(file.stat(), file.close())
        return data, found
