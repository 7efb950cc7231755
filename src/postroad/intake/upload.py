"""The resumable upload of one file, in parts.

```
begin ──> part ──> part ──> … ──> complete ──> check size ──> (resumed: read back, hash)
```

A part is read, hashed in order, sent, and then recorded in the journal; only recorded parts count.
A part that is stored but not recorded is compared by its tag. The state of a sha256 cannot be
stored, so a resumed file is hashed by reading the finished object back.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from postroad.intake.claim import Claim
from postroad.intake.errors import FileChanged, ObjectDiffers, UploadLost
from postroad.intake.stores import Store
from postroad.intake.stores.part import Data, Part, part_size_for
from postroad.postgres.calls import Row

MAX_READS = 2

# Reads a range of a file, by offset and size.
Read = Callable[[int, int], Awaitable[Data]]


@contextlib.asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Run tasks in a group that raises the first error itself, not a group of errors."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


@dataclass
class Upload:
    """The upload of one file: which parts are stored, and which are missing."""

    claim: Claim
    store: Store
    row: Row
    key: str
    upload_id: str = ""
    part_size: int = 0
    stored: dict[int, Part] = field(default_factory=dict)
    # Tags of the parts that are stored but not recorded.
    unrecorded: dict[int, str] = field(default_factory=dict)
    is_resumed: bool = False
    is_complete: bool = False

    def __post_init__(self) -> None:
        self._id: int = self.row["id"]
        self._filesize: int = self.row["filesize"]

    async def open(self) -> None:
        """Resume the upload that was begun, or begin one."""
        if self.row["upload_id"] and self.row["store"] == self.store.name:
            self.upload_id, self.part_size = self.row["upload_id"], self.row["part_size"]
            self.key = self.row["object_key"]
            for one in await self.claim.engine.journal.select("parts", self._id):
                self.stored[one["number"]] = Part(*(one[name] for name in Part._fields))
            try:
                self._compare(await self.store.parts(self.key, self.upload_id))
            except UploadLost:
                # An earlier worker may have completed it and died before recording it.
                is_whole = sum(part.size for part in self.stored.values()) == self._filesize
                if is_whole and await self.store.size(self.key) == self._filesize:
                    self.is_complete = self.is_resumed = True
                    return
                await self.forget()
            else:
                self.is_resumed = bool(self.stored)
                return
        self.part_size = part_size_for(self._filesize, self.claim.engine.settings.part_bytes)
        self.row["upload_id"] = self.upload_id = await self.store.begin(self.key)
        begun = self.store.name, self.key, self.upload_id, self.part_size
        await self.claim.change("begin_upload", self._id, *begun)

    def _compare(self, at_store: list[Part] | None) -> None:
        if at_store is not None:
            found = {part.number: part for part in at_store}
            for number, part in self.stored.items():
                if number not in found or found[number].size != part.size:
                    raise UploadLost(f"the store has lost part {number}")
            missing = found.keys() - self.stored
            self.unrecorded = {number: found[number].etag for number in missing}

    async def forget(self) -> None:
        """Drop the upload, in the journal and in the store."""
        if self.upload_id:
            await self.store.abort(self.key, self.upload_id)
            await self.claim.engine.journal.change("forget_upload", self._id, self.upload_id)
        self.stored.clear()
        self.unrecorded.clear()
        self.is_resumed = False

    async def send(self, read: Read) -> str | None:
        """Send the missing parts; returns the sha256 of the file if it was read from its start."""
        running = None if self.is_resumed else hashlib.sha256()
        window = asyncio.Semaphore(self.claim.engine.settings.parts_in_memory)
        reads = asyncio.Semaphore(MAX_READS)
        before = asyncio.Event()
        before.set()

        async def carry(number: int, previous: asyncio.Event, hashed: asyncio.Event) -> None:
            try:
                offset = (number - 1) * self.part_size
                size = min(self.part_size, self._filesize - offset)
                async with reads:
                    data = await read(offset, size)
                if len(data) != size:
                    name = self.row["filename"]
                    raise FileChanged(f"{name} is shorter than when it was discovered")
                digest = await asyncio.to_thread(_digest, data)
                await previous.wait()
                if running is not None:
                    await asyncio.to_thread(running.update, data)
                hashed.set()
                await self._put(number, offset, data, digest)
            finally:
                window.release()

        async with task_group() as tasks:
            for number in self._numbers:
                if number not in self.stored:
                    await window.acquire()
                    self.claim.check(self._id)
                    after = asyncio.Event()
                    tasks.create_task(carry(number, before, after))
                    before = after
        return running.hexdigest() if running is not None else None

    @property
    def _numbers(self) -> range:
        return range(1, -(-self._filesize // self.part_size) + 1)

    async def _put(self, number: int, offset: int, data: Data, digest: bytes) -> None:
        self.claim.check(self._id)
        etag = self.unrecorded.get(number)
        if etag is None or etag.strip('"') != await asyncio.to_thread(_md5, data):
            etag = await self.store.put_part(self.key, self.upload_id, number, offset, data, digest)
        lease = self.claim.engine.settings.lease
        await self.claim.change("store_part", self._id, number, len(data), etag, digest, lease)
        self.stored[number] = Part(number, len(data), etag, digest)

    async def complete(self, sha256: str | None) -> str:
        """Make the object, check its size and return its sha256. Raises ObjectDiffers."""
        if not self.is_complete:
            parts = [self.stored[number] for number in sorted(self.stored)]
            await self.store.complete(self.key, self.upload_id, parts)
        if await self.store.size(self.key) != self._filesize:
            raise ObjectDiffers(f"the object {self.key} differs in size from its file")
        return sha256 or await self._read_back()

    async def _read_back(self) -> str:
        whole = hashlib.sha256()
        for number in self._numbers:
            self.claim.check(self._id)
            offset = (number - 1) * self.part_size
            data = await self.store.read_range(self.key, offset, self.part_size)
            part = self.stored.get(number)
            if part is None or part.sha256 != await asyncio.to_thread(_digest, data):
                raise ObjectDiffers(f"part {number} of {self.key} differs from what was sent")
            await asyncio.to_thread(whole.update, data)
        return whole.hexdigest()


def _digest(data: Data) -> bytes:
    return hashlib.sha256(data).digest()


def _md5(data: Data) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
