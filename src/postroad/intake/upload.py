"""The resumable upload of one file, in parts, and the readers from which it takes its bytes.

```
begin ──> part ──> part ──> … ──> complete ──> check size ──> (resumed: read back, hash)
```

A part is read, hashed in order, sent, and then recorded in the journal; only recorded parts count.
A resumed upload sends the parts that are not recorded; one that the store has in spite of that is
compared by its tag first. The state of a sha256 cannot be stored, so a resumed file is hashed by
reading the finished object back. That checks the digest of each part, too, and reads nothing from
the source.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from postroad.intake.claim import Claim
from postroad.intake.errors import FileChanged, FileVanished, ObjectDiffers, UploadLost
from postroad.intake.journal import Row
from postroad.intake.source import Source, answering
from postroad.intake.stores.store import Part, Store, part_size_for

__all__ = ["LocalReader", "RemoteReader", "Upload", "task_group"]

MAX_READS = 2


class Reader(Protocol):
    """Reads ranges of a file, several at a time."""

    async def read(self, offset: int, size: int) -> bytearray:
        """Return exactly that range. Raises FileChanged when the file is shorter."""
        ...


@dataclass(slots=True)
class RemoteReader:
    """Reads ranges of an open remote file by many requests in flight."""

    source: Source
    file: Any
    shown: str

    async def read(self, offset: int, size: int) -> bytearray:
        """Return exactly that range."""
        buffer = bytearray(size)
        count = 0
        async with answering(self.shown, self.source):
            async for place, data in await self.file.read_parallel(size, offset):
                start = place - offset
                buffer[start : start + len(data)] = data
                count += len(data)
        if count != size:
            raise FileChanged(f"{self.shown} is shorter than it was when it was discovered")
        return buffer


@dataclass(slots=True)
class LocalReader:
    """Reads ranges of a local file."""

    path: Path

    async def read(self, offset: int, size: int) -> bytearray:
        """Return exactly that range."""
        return await asyncio.to_thread(self._read, offset, size)

    def _read(self, offset: int, size: int) -> bytearray:
        buffer = bytearray(size)
        try:
            with self.path.open("rb", buffering=0) as file:
                count = os.preadv(file.fileno(), [buffer], offset)
        except FileNotFoundError:
            raise FileVanished(f"the temporary file {self.path.name} is gone") from None
        if count != size:
            raise FileChanged(f"the temporary file {self.path.name} is shorter than its file")
        return buffer


@contextlib.asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Run tasks in a group that raises the first error itself, not a group of errors."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        failure: BaseException = group
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        raise failure from None


@dataclass(slots=True)
class Upload:
    """The upload of one file: which parts are stored, and which are missing."""

    claim: Claim
    store: Store
    row: Row
    key: str
    upload_id: str = ""
    part_size: int = 0
    stored: dict[int, Part] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    # Tags of the parts that the store has and the journal has not.
    unrecorded: dict[int, str] = field(default_factory=dict)
    is_resumed: bool = False
    is_complete: bool = False

    @property
    def _id(self) -> int:
        return int(self.row["id"])

    async def open(self) -> None:
        """Resume the upload that was begun, or begin one."""
        journal = self.claim.engine.journal
        if self.row["upload_id"] and self.row["store"] == self.store.name:
            self.upload_id, self.part_size = self.row["upload_id"], self.row["part_size"]
            self.key = self.row["object_key"]
            for part in await journal.select("parts", self._id):
                number = part["number"]
                self.stored[number] = Part(number, part["size"], part["etag"])
                self.digests[number] = part["sha256"]
            try:
                await self._compare(await self.store.parts(self.key, self.upload_id))
            except UploadLost:
                if await self._is_finished_object():
                    self.is_complete = self.is_resumed = True
                    return
                await self.forget()
            else:
                self.is_resumed = bool(self.stored)
                return
        wanted = self.claim.engine.settings.part_bytes
        self.part_size = part_size_for(self.row["filesize"], wanted)
        self.row["upload_id"] = self.upload_id = await self.store.begin(self.key)
        await journal.run(
            "begin_upload",
            self._id,
            self.claim.token,
            self.store.name,
            self.key,
            self.upload_id,
            self.part_size,
        )

    async def _compare(self, at_store: list[Part] | None) -> None:
        if at_store is None:
            return
        found = {part.number: part for part in at_store}
        for number, part in self.stored.items():
            if number not in found or found[number].size != part.size:
                raise UploadLost(f"the store has lost part {number}")
        self.unrecorded = {
            number: part.etag for number, part in found.items() if number not in self.stored
        }

    async def _is_finished_object(self) -> bool:
        """Check whether an earlier worker completed the upload and died before recording it."""
        whole = sum(part.size for part in self.stored.values()) == self.row["filesize"]
        size: int = self.row["filesize"]
        return whole and await self.store.size(self.key) == size

    async def forget(self) -> None:
        """Drop the upload, in the journal and in the store."""
        if self.upload_id:
            await self.store.abort(self.key, self.upload_id)
            await self.claim.engine.journal.run("forget_upload", self._id, self.upload_id)
        self.stored.clear()
        self.digests.clear()
        self.unrecorded.clear()
        self.is_resumed = False

    async def send(self, reader: Reader) -> str | None:
        """Send the missing parts; returns the sha256 of the file if it was read from its start."""
        filesize = self.row["filesize"]
        count = -(-filesize // self.part_size)
        missing = [number for number in range(1, count + 1) if number not in self.stored]
        running = None if self.is_resumed else hashlib.sha256()
        window = asyncio.Semaphore(self.claim.engine.settings.parts_in_memory)
        reads = asyncio.Semaphore(MAX_READS)
        before = asyncio.Event()
        before.set()

        async def carry(number: int, previous: asyncio.Event, hashed: asyncio.Event) -> None:
            try:
                offset = (number - 1) * self.part_size
                size = min(self.part_size, filesize - offset)
                async with reads:
                    data = await reader.read(offset, size)
                digest = await asyncio.to_thread(lambda: hashlib.sha256(data).digest())
                await previous.wait()
                if running is not None:
                    await asyncio.to_thread(running.update, data)
                hashed.set()
                await self._put(number, offset, data, digest)
            finally:
                window.release()

        async with task_group() as tasks:
            for number in missing:
                await window.acquire()
                self.claim.check(self._id)
                after = asyncio.Event()
                tasks.create_task(carry(number, before, after))
                before = after
        return running.hexdigest() if running is not None else None

    async def _put(self, number: int, offset: int, data: bytearray, digest: bytes) -> None:
        self.claim.check(self._id)
        etag = self.unrecorded.get(number)
        if etag is None or etag.strip('"') != await asyncio.to_thread(
            lambda: hashlib.md5(data, usedforsecurity=False).hexdigest()
        ):
            etag = await self.store.put_part(self.key, self.upload_id, number, offset, data, digest)
        await self.claim.engine.journal.run(
            "store_part",
            self._id,
            self.claim.token,
            number,
            len(data),
            etag,
            digest,
            self.claim.engine.settings.lease,
        )
        self.stored[number] = Part(number, len(data), etag)
        self.digests[number] = digest

    async def complete(self, sha256: str | None) -> str:
        """Make the object, check its size and return its sha256. Raises ObjectDiffers."""
        if not self.is_complete:
            parts = [self.stored[number] for number in sorted(self.stored)]
            await self.store.complete(self.key, self.upload_id, parts)
        if await self.store.size(self.key) != self.row["filesize"]:
            raise ObjectDiffers(f"the object {self.key} differs in size from its file")
        return sha256 or await self._read_back()

    async def _read_back(self) -> str:
        whole = hashlib.sha256()
        part = hashlib.sha256()
        number, left = 1, self.part_size
        async for piece in self.store.read(self.key):
            self.claim.check(self._id)
            view = memoryview(piece)
            await asyncio.to_thread(whole.update, view)
            while view:
                part.update(view[:left])
                taken = min(left, len(view))
                view, left = view[taken:], left - taken
                if left == 0:
                    self._same(number, part.digest())
                    part, number, left = hashlib.sha256(), number + 1, self.part_size
        if left != self.part_size:
            self._same(number, part.digest())
        return whole.hexdigest()

    def _same(self, number: int, digest: bytes) -> None:
        if self.digests.get(number) != digest:
            raise ObjectDiffers(
                f"part {number} of the object {self.key} differs from what was sent"
            )
