"""A folder as a store, with the durable write discipline.

An object is written to a partial file, synced, renamed into place, and the folder is synced: after
a crash it is there whole or not at all. Parts of an upload are written at their place in one
partial file, so completing is a rename and costs no copy.

```
<folder>/<key>                     the objects
<folder>/.uploads/<upload id>      a partial file; .key beside it holds the key
```

Keys never hold a part that begins with a dot, so `.uploads` cannot be reached by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

from postroad.intake.errors import (
    KeyRefused,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UploadLost,
)
from postroad.intake.stores.store import OpenUpload, Part

__all__ = ["FolderStore"]

P = ParamSpec("P")
T = TypeVar("T")

READ_BYTES = 4 * 1024 * 1024
FULL = {errno.ENOSPC, errno.EDQUOT}
REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR}
# About one key: a folder where its file should be, a file where its folder should be, too long.
KEY_REFUSED = {
    errno.EEXIST,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.ENAMETOOLONG,
}


class FolderStore:
    """Objects as files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"file://{folder}"
        self._uploads = folder / ".uploads"

    async def put(self, key: str, data: bytes | bytearray, sha256: str) -> None:
        """Write, sync, rename, sync."""
        del sha256
        await self._in_thread(self._put, key, data)

    async def begin(self, key: str) -> str:
        """Make the partial file."""
        return await self._in_thread(self._begin, key)

    async def put_part(
        self, key: str, upload_id: str, number: int, offset: int, data: bytearray, sha256: bytes
    ) -> str:
        """Write a part at its place and sync it."""
        del key, number
        await self._in_thread(self._put_part, upload_id, offset, data)
        return sha256.hex()

    async def parts(self, key: str, upload_id: str) -> list[Part] | None:
        """Parts are known to the journal only; raises UploadLost when the partial file is gone."""
        del key
        if not await self._in_thread(self._partial(upload_id).is_file):
            raise UploadLost(f"the partial file of upload {upload_id} is gone")
        return None

    async def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """Cut the partial file to its size and rename it into place."""
        await self._in_thread(self._complete, key, upload_id, sum(part.size for part in parts))

    async def abort(self, key: str, upload_id: str) -> None:
        """Remove the partial file."""
        del key
        await self._in_thread(self._abort, upload_id)

    async def remove(self, key: str) -> None:
        """Remove an object; a missing one is no error."""
        await self._in_thread((self.folder / key).unlink, missing_ok=True)

    async def size(self, key: str) -> int | None:
        """Look at the file."""

        def look() -> int | None:
            try:
                return (self.folder / key).stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

        return await self._in_thread(look)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Read the file piece by piece."""
        file = await self._in_thread((self.folder / key).open, "rb")
        with file:
            while piece := await self._in_thread(file.read, READ_BYTES):
                yield piece

    async def open_uploads(self) -> list[OpenUpload]:
        """List the partial files."""

        def look() -> list[OpenUpload]:
            found = []
            for note in self._uploads.glob("*.key") if self._uploads.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    begun = datetime.fromtimestamp(note.stat().st_mtime, UTC)
                    found.append(OpenUpload(note.read_text("utf-8"), note.stem, begun))
            return found

        return await self._in_thread(look)

    async def check(self) -> None:
        """Make the folder, and see that it can be written."""

        def write() -> None:
            self._uploads.mkdir(parents=True, exist_ok=True)
            probe = self._uploads / f"probe-{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()

        await self._in_thread(write)

    async def close(self) -> None:
        """Nothing is held open."""

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with _store_errors(self.folder):
            return await asyncio.to_thread(call, *args, **kwargs)

    def _partial(self, upload_id: str) -> Path:
        return self._uploads / upload_id

    def _put(self, key: str, data: bytes | bytearray) -> None:
        self._uploads.mkdir(parents=True, exist_ok=True)
        partial = self._partial(f"put-{uuid.uuid4().hex}")
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._rename(partial, key)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def _begin(self, key: str) -> str:
        self._uploads.mkdir(parents=True, exist_ok=True)
        # Told before the first byte travels, not after the last one.
        self._make_room(key)
        upload_id = uuid.uuid4().hex
        self._partial(upload_id).touch(exist_ok=False)
        (self._uploads / f"{upload_id}.key").write_text(key, encoding="utf-8")
        return upload_id

    def _put_part(self, upload_id: str, offset: int, data: bytearray) -> None:
        try:
            descriptor = os.open(self._partial(upload_id), os.O_WRONLY)
        except FileNotFoundError:
            raise UploadLost(f"the partial file of upload {upload_id} is gone") from None
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view = view[written:]
                offset += written
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def _complete(self, key: str, upload_id: str, size: int) -> None:
        partial = self._partial(upload_id)
        try:
            with partial.open("r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())
        except FileNotFoundError:
            raise UploadLost(f"the partial file of upload {upload_id} is gone") from None
        self._rename(partial, key)
        (self._uploads / f"{upload_id}.key").unlink(missing_ok=True)

    def _abort(self, upload_id: str) -> None:
        self._partial(upload_id).unlink(missing_ok=True)
        (self._uploads / f"{upload_id}.key").unlink(missing_ok=True)

    def _make_room(self, key: str) -> list[Path]:
        """Make the folders of a key; returns those that were missing. Raises KeyRefused."""
        target = self.folder / key
        with self._key_errors(key):
            made = [folder for folder in target.parents if not folder.exists()]
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return made

    def _rename(self, partial: Path, key: str) -> None:
        made = self._make_room(key)
        target = self.folder / key
        with self._key_errors(key):
            partial.replace(target)
        for folder in {target.parent, *(one.parent for one in made)}:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _key_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            if failure.errno not in KEY_REFUSED or not self._uploads.is_dir():
                raise
            raise KeyRefused(
                f"the store {self.folder} cannot keep {key}: {failure.strerror}",
                hint="move away what is in its place, then: postroad intake retry ID",
            ) from None


@contextlib.contextmanager
def _store_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        reason = failure.strerror or str(failure)
        if failure.errno in FULL:
            raise StoreFull(f"the store {folder} is full: {reason}") from None
        if failure.errno in REFUSED:
            raise StoreRefused(f"the store {folder} refuses: {reason}") from None
        raise StoreUnavailable(f"the store {folder} fails: {reason}") from None
