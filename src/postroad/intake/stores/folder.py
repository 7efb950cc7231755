"""A folder as a store, with durable writes.

An object is written to a partial file, synced and renamed into place, and the folder is synced.
Parts are written at their offset in one partial file, so completing an upload copies nothing.

```
<folder>/<key>                     the objects
<folder>/.uploads/<upload id>      a partial file; <upload id>.key holds its key
```

No part of a key begins with a dot, so no key leads into `.uploads`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from postroad.durable import sync, sync_folders
from postroad.intake import errors
from postroad.intake.stores.part import Data, OpenUpload, Part

P = ParamSpec("P")
T = TypeVar("T")

FULL = {errno.ENOSPC, errno.EDQUOT}
REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR}
# Errors of a single key: its file has the name of a folder or the reverse, or it is too long.
KEY_REFUSED = {errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG}


def _threaded(
    method: Callable[Concatenate[FolderStore, P], T],
) -> Callable[Concatenate[FolderStore, P], Coroutine[Any, Any, T]]:
    """Run a method in a thread and raise its OSErrors as errors of the store."""

    @functools.wraps(method)
    async def call(store: FolderStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await asyncio.to_thread(method, store, *args, **kwargs)
        except OSError as failure:
            kind: type[errors.StoreError] = errors.StoreUnavailable
            what = "fails"
            if failure.errno in FULL:
                kind, what = errors.StoreFull, "is full"
            elif failure.errno in REFUSED:
                kind, what = errors.StoreRefused, "rejects it"
            text = f"the store {store.folder} {what}: {failure.strerror or failure}"
            raise kind(text) from None

    return call


class FolderStore:
    """Objects as files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"file://{folder}"
        self._uploads = folder / ".uploads"
        # Folders whose own names are durable; another process may have made one a moment ago.
        self._durable: set[Path] = set()

    @_threaded
    def put(self, key: str, data: Data, sha256: str) -> None:
        """Write, sync, rename, sync."""
        self._uploads.mkdir(parents=True, exist_ok=True)
        partial = self._uploads / f"put-{uuid.uuid4().hex}"
        try:
            partial.write_bytes(data)
            sync(partial)
            self._rename(partial, key)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    @_threaded
    def begin(self, key: str) -> str:
        """Create the partial file."""
        self._uploads.mkdir(parents=True, exist_ok=True)
        # An invalid key fails here, before the first byte is sent.
        self._make_folders(key)
        upload_id = uuid.uuid4().hex
        (self._uploads / upload_id).touch(exist_ok=False)
        (self._uploads / f"{upload_id}.key").write_text(key, encoding="utf-8")
        return upload_id

    @_threaded
    def put_part(
        self, key: str, upload_id: str, number: int, offset: int, data: Data, sha256: bytes
    ) -> str:
        """Write a part at its offset and sync it."""
        with self._begun(upload_id, os.O_WRONLY) as descriptor:
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
            os.fdatasync(descriptor)
        return sha256.hex()

    @_threaded
    def parts(self, key: str, upload_id: str) -> list[Part] | None:
        """Return None: only the journal lists parts. Raises UploadLost without a partial file."""
        with self._begun(upload_id, os.O_RDONLY):
            return None

    @_threaded
    def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """Truncate the partial file to its size and rename it into place."""
        with self._begun(upload_id, os.O_WRONLY) as descriptor:
            os.ftruncate(descriptor, sum(part.size for part in parts))
            os.fsync(descriptor)
        self._rename(self._uploads / upload_id, key)
        (self._uploads / f"{upload_id}.key").unlink(missing_ok=True)

    @_threaded
    def abort(self, key: str, upload_id: str) -> None:
        """Remove the partial file."""
        for name in (upload_id, f"{upload_id}.key"):
            (self._uploads / name).unlink(missing_ok=True)

    @_threaded
    def remove(self, key: str) -> None:
        """Remove an object; a missing one is no error."""
        (self.folder / key).unlink(missing_ok=True)

    @_threaded
    def size(self, key: str) -> int | None:
        """Return the size of the file."""
        try:
            return (self.folder / key).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    @_threaded
    def read_range(self, key: str, offset: int, size: int) -> bytes:
        """Read a range; shorter at the end of the file."""
        with (self.folder / key).open("rb") as file:
            return os.pread(file.fileno(), size, offset)

    @_threaded
    def open_uploads(self) -> list[OpenUpload]:
        """List the partial files."""
        found = []
        for note in self._uploads.glob("*.key") if self._uploads.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                begun = datetime.fromtimestamp(note.stat().st_mtime, UTC)
                found.append(OpenUpload(note.read_text("utf-8"), note.stem, begun))
        return found

    @_threaded
    def old_files(self, before: datetime, suffixes: tuple[str, ...]) -> list[str]:
        """List the files in the folder itself that were last written before a time."""
        found = []
        for path in self.folder.glob("*") if self.folder.is_dir() else ():
            # Another process may just be removing it.
            with contextlib.suppress(FileNotFoundError):
                if path.name.endswith(suffixes) and path.stat().st_mtime < before.timestamp():
                    found.append(path.name)
        return found

    async def close(self) -> None:
        """Do nothing: no file is kept open."""

    @contextlib.contextmanager
    def _begun(self, upload_id: str, flags: int) -> Iterator[int]:
        try:
            descriptor = os.open(self._uploads / upload_id, flags)
        except FileNotFoundError:
            raise errors.UploadLost(f"the partial file of upload {upload_id} is gone") from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _make_folders(self, key: str) -> None:
        target = self.folder / key
        with self._key_errors(key):
            if not target.parent.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                self._durable.clear()
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _rename(self, partial: Path, key: str) -> None:
        self._make_folders(key)
        target = self.folder / key
        with self._key_errors(key):
            partial.replace(target)
        sync(target.parent)
        if target.parent not in self._durable:
            sync_folders(target.parent.parent)
            self._durable.add(target.parent)

    @contextlib.contextmanager
    def _key_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            if failure.errno not in KEY_REFUSED or not self._uploads.is_dir():
                raise
            raise errors.KeyRefused(
                f"the store {self.folder} cannot keep {key}: {failure.strerror}",
                hint="remove what is in its place, then: postroad intake retry ID",
            ) from None
