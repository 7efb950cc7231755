"""The resumable upload of one file, in parts.

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
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from postroad.intake.claim import Claim
from postroad.intake.errors import FileChanged, ObjectDiffers, UploadLost
from postroad.intake.stores import Store
from postroad.intake.stores.part import Part, part_size_for
from postroad.postgres.calls import Row

MAX_READS = 2

# Reads a range of a file, by offset and size.
Read = Callable[[int, int], Awaitable[bytes | bytearray]]


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
        if self.row["upload_id"] and self.row["store"] == self.store.name:
            self.upload_id, self.part_size = self.row["upload_id"], self.row["part_size"]
            self.key = self.row["object_key"]
            for part in await self.claim.engine.journal.select("parts", self._id):
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
        begun = self.store.name, self.key, self.upload_id, self.part_size
        await self.claim.change("begin_upload", self._id, *begun)

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
        size: int = self.row["filesize"]
        is_whole = sum(part.size for part in self.stored.values()) == size
        return is_whole and await self.store.size(self.key) == size

    async def forget(self) -> None:
        """Drop the upload, in the journal and in the store."""
        if self.upload_id:
            await self.store.abort(self.key, self.upload_id)
            await self.claim.engine.journal.change("forget_upload", self._id, self.upload_id)
        self.stored.clear()
        self.digests.clear()
        self.unrecorded.clear()
        self.is_resumed = False

    async def send(self, read: Read) -> str | None:
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
                    data = await read(offset, size)
                if len(data) != size:
                    raise FileChanged(
                        f"{self.row['filename']} is shorter than when it was discovered"
                    )
                digest = await asyncio.to_thread(_digest, data)
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

    async def _put(self, number: int, offset: int, data: bytes | bytearray, digest: bytes) -> None:
        self.claim.check(self._id)
        etag = self.unrecorded.get(number)
        if etag is None or etag.strip('"') != await asyncio.to_thread(
            lambda: hashlib.md5(data, usedforsecurity=False).hexdigest()
        ):
            etag = await self.store.put_part(self.key, self.upload_id, number, offset, data, digest)
        lease = self.claim.engine.settings.lease
        await self.claim.change("store_part", self._id, number, len(data), etag, digest, lease)
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
        for number in range(1, -(-self.row["filesize"] // self.part_size) + 1):
            self.claim.check(self._id)
            offset = (number - 1) * self.part_size
            part = await self.store.read_range(self.key, offset, self.part_size)
            if self.digests.get(number) != await asyncio.to_thread(_digest, part):
                raise ObjectDiffers(f"part {number} of {self.key} differs from what was sent")
            await asyncio.to_thread(whole.update, part)
        return whole.hexdigest()


def _digest(data: bytes | bytearray) -> bytes:
    return hashlib.sha256(data).digest()
