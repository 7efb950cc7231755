"""Durable files: every operation on the folders of the exchange is here, and nowhere else.

A file is written under a temporary name, synchronised, renamed, and its folder is synchronised. A
move is a rename, synchronised in both folders by the caller. After a failed `fsync` the file is
removed, never synchronised again: the kernel may have dropped what it could not write.

Nothing here follows a symbolic link. The way down from the root is opened folder by folder, and
what is not a plain file is refused, so that a planted link or pipe leads nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Self, get_args

from postroad.exchange.errors import FileUnsafe, StorageFailed

__all__ = ["FOLDERS", "TEMPORARY_PREFIX", "Folder", "Session", "Storage", "temporary_name"]

Folder = Literal["Messages", "Prepared", "Log", "Unknown", "Error"]
FOLDERS: tuple[Folder, ...] = get_args(Folder)
TEMPORARY_PREFIX = ".new-"
CHUNK_BYTES = 1 << 20

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the open of a planted pipe would wait for a writer for ever.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNSAFE = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}


_process_name = secrets.token_hex(8)
_numbers = itertools.count(1)


def temporary_name() -> str:
    """Return a name that no file has: hidden, and never the name of a message."""
    return f"{TEMPORARY_PREFIX}{_process_name}-{next(_numbers)}"


class Storage:
    """The folders under one root. All methods block; they are called from threads."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextlib.contextmanager
    def folder(self, database: str, folder: str) -> Iterator[int]:
        """Open a folder without following links; its descriptor is closed afterwards."""
        root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            parent = _open_folder(root, database)
        finally:
            os.close(root)
        try:
            descriptor = _open_folder(parent, folder)
        finally:
            os.close(parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def make_database(self, database: str) -> None:
        """Make the folders of a database, durably; what is there stays."""
        root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _make_folder(root, database)
            parent = _open_folder(root, database)
            try:
                for folder in FOLDERS:
                    _make_folder(parent, folder)
                os.fsync(parent)
            finally:
                os.close(parent)
            os.fsync(root)
        finally:
            os.close(root)

    def write(self, database: str, folder: str, name: str, content: bytes) -> None:
        """Write and synchronise a new file; the folder is not synchronised yet."""
        with self.writer(database, folder, name) as descriptor:
            _write_all(descriptor, content)

    def write_many(
        self, database: str, folder: str, files: Sequence[tuple[str, bytes]]
    ) -> list[OSError | None]:
        """Write and synchronise new files; return for each what went wrong, or None."""
        failures: list[OSError | None] = []
        with self.folder(database, folder) as parent:
            for name, content in files:
                try:
                    with _new_file(parent, name) as descriptor:
                        _write_all(descriptor, content)
                    failures.append(None)
                except OSError as failure:
                    failures.append(failure)
        return failures

    @contextlib.contextmanager
    def writer(self, database: str, folder: str, name: str) -> Iterator[int]:
        """Create a file, let it be filled, synchronise it; remove it if anything fails."""
        with (
            self.folder(database, folder) as parent,
            _new_file(parent, name) as descriptor,
        ):
            yield descriptor

    def open(self, database: str, folder: str, name: str) -> int:
        """Open a plain file for reading; the caller closes the descriptor."""
        with self.folder(database, folder) as parent:
            try:
                descriptor = os.open(name, _READ, dir_fd=parent)
            except OSError as failure:
                raise _safe(failure, name) from failure
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise FileUnsafe(f"{folder}/{name} is not a plain file")
            return descriptor

    def read(self, database: str, folder: str, name: str, limit_bytes: int) -> bytes:
        """Read a small file, at most one byte more than the limit."""
        descriptor = self.open(database, folder, name)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit_bytes + 1)

    def digest(self, database: str, folder: str, name: str) -> tuple[int, str]:
        """Return size and sha256 of a file."""
        descriptor = self.open(database, folder, name)
        found = hashlib.sha256()
        size = 0
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                found.update(chunk)
                size += len(chunk)
        return size, found.hexdigest()

    def exists(self, database: str, folder: str, name: str) -> bool:
        """Whether something lies under this name."""
        try:
            with self.folder(database, folder) as parent:
                os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def rename(
        self, database: str, source: tuple[str, str], target: tuple[str, str], *, to: str = ""
    ) -> None:
        """Move a file, as (folder, name), across file systems by copy."""
        with (
            self.folder(database, source[0]) as from_folder,
            self.folder(to or database, target[0]) as to_folder,
        ):
            try:
                os.rename(source[1], target[1], src_dir_fd=from_folder, dst_dir_fd=to_folder)
            except OSError as failure:
                if failure.errno != errno.EXDEV:
                    raise
                _copy(from_folder, source[1], to_folder, target[1])

    def unlink(self, database: str, folder: str, name: str) -> None:
        """Remove a file; one that is not there is removed already."""
        with (
            contextlib.suppress(FileNotFoundError),
            self.folder(database, folder) as parent,
        ):
            os.unlink(name, dir_fd=parent)

    def synchronise(self, database: str, folder: str) -> None:
        """Make the names in a folder durable."""
        with self.folder(database, folder) as descriptor:
            os.fsync(descriptor)

    def names(self, database: str, folder: str) -> Iterator[str]:
        """Give every name in a folder, the temporary ones too."""
        try:
            with self.folder(database, folder) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    yield entry.name
        except FileNotFoundError:
            return

    def databases(self) -> list[str]:
        """Name the folders that lie in the root."""
        return sorted(
            entry.name
            for entry in os.scandir(self.root)
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        )


class Session(Storage):
    """The same folders for a moment: each is opened once and kept until the end of the block."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._opened: dict[tuple[str, str], int] = {}

    @contextlib.contextmanager
    def folder(self, database: str, folder: str) -> Iterator[int]:
        """Open a folder, or give the one that is open."""
        key = (database, folder)
        if key not in self._opened:
            with super().folder(database, folder) as descriptor:
                self._opened[key] = os.dup(descriptor)
        yield self._opened[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)
        self._opened.clear()


def _open_folder(parent: int, name: str) -> int:
    try:
        return os.open(name, _OPEN_FOLDER, dir_fd=parent)
    except OSError as failure:
        if failure.errno not in _UNSAFE:
            raise
        # Of the whole folder: no message in it is to blame.
        raise StorageFailed(
            f"the folder {name} is a link, or not a folder",
            hint="put the folder back; the exchange follows no links",
        ) from failure


def _make_folder(parent: int, name: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o750, dir_fd=parent)


def _safe(failure: OSError, name: str) -> Exception:
    if failure.errno in _UNSAFE:
        return FileUnsafe(
            f"{name} is a link, or not what is expected there",
            hint="remove it from the root folder; the exchange follows no links",
        )
    return failure


@contextlib.contextmanager
def _new_file(parent: int, name: str) -> Iterator[int]:
    """Create a file, let it be filled, synchronise it; remove it if anything fails."""
    descriptor = os.open(name, _CREATE, 0o640, dir_fd=parent)
    try:
        try:
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=parent)
        raise


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _copy(source_folder: int, source: str, target_folder: int, target: str) -> None:
    temporary = temporary_name()
    reading = os.open(source, _READ, dir_fd=source_folder)
    try:
        with _new_file(target_folder, temporary) as writing:
            while chunk := os.read(reading, CHUNK_BYTES):
                _write_all(writing, chunk)
    finally:
        os.close(reading)
    try:
        os.rename(temporary, target, src_dir_fd=target_folder, dst_dir_fd=target_folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=target_folder)
        raise
    os.fsync(target_folder)
    os.unlink(source, dir_fd=source_folder)
