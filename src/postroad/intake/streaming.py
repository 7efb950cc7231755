"""One large file from a reader into the store, in parts, so that it can be resumed.

```
begin ──> part ──> part ──> … ──> complete ──> check size ──> (resumed: read back, hash)
```

A part is read, hashed in its turn, sent, and then noted in the journal; only noted parts count. A
transfer that died goes on with the parts that are not noted: those that the store has all the same
are compared by their tag before they are sent again. The running sha256 cannot be kept, so a
resumed file is hashed by reading the finished object back, which checks every part's own digest as
well and costs the source nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field

from postroad.intake.engine import Engine
from postroad.intake.errors import ObjectDiffers, UploadLost
from postroad.intake.holding import Hold
from postroad.intake.journal import Row
from postroad.intake.readers import Reader
from postroad.intake.stores.store import Part, part_size_for
from postroad.intake.together import together

__all__ = ["Upload"]

READS_AT_ONCE = 2


@dataclass(slots=True)
class Upload:
    """The upload of one file: what is stored, and what is missing."""

    engine: Engine
    hold: Hold
    row: Row
    key: str
    upload_id: str = ""
    part_size: int = 0
    stored: dict[int, Part] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    # Parts that the store has though the journal does not say so, by their tags.
    unnoted: dict[int, str] = field(default_factory=dict)
    is_resumed: bool = False
    is_complete: bool = False

    @property
    def _id(self) -> int:
        return int(self.row["id"])

    async def open(self) -> None:
        """Go on with the upload that was begun, or begin one."""
        journal, store = self.engine.journal, self.engine.store
        if self.row["upload_id"] and self.row["store"] == store.name:
            self.upload_id, self.part_size = self.row["upload_id"], self.row["part_size"]
            self.key = self.row["object_key"]
            for part in await journal.select("parts", self._id):
                number = part["number"]
                self.stored[number] = Part(number, part["size"], part["etag"])
                self.digests[number] = part["sha256"]
            try:
                await self._compare(await store.parts(self.key, self.upload_id))
            except UploadLost:
                if await self._is_finished_object():
                    self.is_complete = self.is_resumed = True
                    return
                await self.forget()
            else:
                self.is_resumed = bool(self.stored)
                return
        self.part_size = part_size_for(self.row["filesize"], self.engine.settings.part_bytes)
        self.upload_id = await store.begin(self.key)
        await journal.call(
            "begin_upload",
            self._id,
            self.hold.token,
            store.name,
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
        self.unnoted = {
            number: part.etag for number, part in found.items() if number not in self.stored
        }

    async def _is_finished_object(self) -> bool:
        """Tell whether a former holder completed the upload and died before it could note it."""
        whole = sum(part.size for part in self.stored.values()) == self.row["filesize"]
        size: int = self.row["filesize"]
        return whole and await self.engine.store.size(self.key) == size

    async def forget(self) -> None:
        """Drop the upload, here and at the store."""
        if self.upload_id:
            await self.engine.store.abort(self.key, self.upload_id)
            await self.engine.journal.call("forget_upload", self._id, self.upload_id)
        self.stored.clear()
        self.digests.clear()
        self.unnoted.clear()
        self.is_resumed = False

    async def send(self, reader: Reader) -> str | None:
        """Send the missing parts; returns the sha256 of the file if it was read from its start."""
        filesize = self.row["filesize"]
        count = -(-filesize // self.part_size)
        missing = [number for number in range(1, count + 1) if number not in self.stored]
        running = None if self.is_resumed else hashlib.sha256()
        window = asyncio.Semaphore(self.engine.settings.parts_in_memory)
        reads = asyncio.Semaphore(READS_AT_ONCE)
        before = asyncio.Event()
        before.set()

        async def carry(number: int, turn: asyncio.Event, next_turn: asyncio.Event) -> None:
            try:
                offset = (number - 1) * self.part_size
                size = min(self.part_size, filesize - offset)
                async with reads:
                    data = await reader.read(offset, size)
                digest = await asyncio.to_thread(_sha256, data)
                await turn.wait()
                if running is not None:
                    await asyncio.to_thread(running.update, data)
                next_turn.set()
                await self._put(number, offset, data, digest)
            finally:
                window.release()

        async with together() as tasks:
            for number in missing:
                await window.acquire()
                self.hold.check(self._id)
                after = asyncio.Event()
                tasks.create_task(carry(number, before, after))
                before = after
        return running.hexdigest() if running is not None else None

    async def _put(self, number: int, offset: int, data: bytearray, digest: bytes) -> None:
        self.hold.check(self._id)
        store = self.engine.store
        etag = self.unnoted.get(number)
        if etag is None or etag.strip('"') != await asyncio.to_thread(_md5, data):
            etag = await store.put_part(self.key, self.upload_id, number, offset, data, digest)
        await self.engine.journal.call(
            "store_part",
            self._id,
            self.hold.token,
            number,
            len(data),
            etag,
            digest,
            self.engine.settings.lease,
        )
        self.stored[number] = Part(number, len(data), etag)
        self.digests[number] = digest

    async def complete(self, sha256: str | None) -> str:
        """Make the object, check it, and return its sha256. Raises ObjectDiffers."""
        store = self.engine.store
        if not self.is_complete:
            parts = [self.stored[number] for number in sorted(self.stored)]
            await store.complete(self.key, self.upload_id, parts)
        if await store.size(self.key) != self.row["filesize"]:
            raise ObjectDiffers(f"the object {self.key} has another size than its file")
        return sha256 or await self._read_back()

    async def _read_back(self) -> str:
        whole = hashlib.sha256()
        part = hashlib.sha256()
        number, left = 1, self.part_size
        async for piece in self.engine.store.read(self.key):
            self.hold.check(self._id)
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
            raise ObjectDiffers(f"part {number} of the object {self.key} is not what was sent")


def _sha256(data: bytearray) -> bytes:
    return hashlib.sha256(data).digest()


def _md5(data: bytearray) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
