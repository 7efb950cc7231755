"""Durable files: every operation on the folders of the exchange is in this module.

A file is written under a temporary name, synchronised, renamed, and its folder is synchronised. A
move is a rename, synchronised in both folders by the caller. After a failed `fsync` the file is
removed, never synchronised again: the kernel may have dropped the data that it could not write.

Symbolic links are not followed: folders are opened one by one from the root, and anything but a
plain file is refused.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import itertools
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, get_args

from postroad.exchange.errors import FileUnsafe, StorageFailed, StorageFull
from postroad.exchange.root import Root
from postroad.settings.exchange import ExchangeSettings

if TYPE_CHECKING:
    from postroad.exchange.objects import ObjectStorage

Folder = Literal["Messages", "Prepared", "Log", "Unknown", "Error"]
FOLDERS: tuple[Folder, ...] = get_args(Folder)
# Database, folder, name.
Place = tuple[str, str, str]
TEMPORARY_PREFIX, OBJECT_PREFIX = ".new-", "object-"
CHUNK_BYTES = 1 << 20

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the open of a planted pipe would wait for a writer forever.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNSAFE = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}


_numbers = itertools.count(1)
# A restored journal may give a generation a second time.
_TOKEN = secrets.token_hex(4)


class Storage(Root):
    """The folders under one root. All methods block; they are called from threads.

    `owner` is a part of temporary names; for a server, its generation.
    """

    objects: ObjectStorage | None = None
    temporary_prefix = TEMPORARY_PREFIX
    # In a session: the folders that were used, which stay open.
    opened: dict[tuple[str, str], int] | None = None
    read_share, readers = 1 << 20, 1
    # The maximum number of files that one thread writes.
    max_write_share = 1 << 20

    def __init__(self, root: Path, owner: str | None = None) -> None:
        super().__init__(root)
        self.address = str(root)
        self.owner = owner or secrets.token_hex(8)
        self.is_full = False
        # The root, and during a migration the second store.
        self.stores: tuple[Storage, ...] = (self,)

    @property
    def has_folders(self) -> bool:
        """Whether content may be in folders."""
        return self.objects is not self

    def temporary_name(self) -> str:
        """Return an unused name; in folders hidden, and never the name of a message."""
        return f"{self.temporary_prefix}{self.owner}.{_TOKEN}.{next(_numbers)}"

    def refuse_when_full(self) -> None:
        """Raise StorageFull for new work while the disk is nearly full."""
        if self.is_full:
            raise StorageFull(
                "the disk is nearly full; open processes may end, nothing new is accepted",
                hint="free space on the disk of the root folder, then send the request again",
            )

    @contextlib.contextmanager
    def session(self) -> Iterator[Storage]:
        """Yield the same folders, each opened once for all operations in the block."""
        session = copy.copy(self)
        session.opened = {}
        # It is used for files only, also where new content is written to an object store.
        session.temporary_prefix = TEMPORARY_PREFIX
        try:
            yield session
        finally:
            for descriptor in session.opened.values():
                os.close(descriptor)

    def free_space(self) -> tuple[int, int]:
        """Return the free and all bytes of the disk."""
        disk = os.statvfs(self.root)
        return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize

    @contextlib.contextmanager
    def folder(self, database: str, folder: str) -> Iterator[int]:
        """Open a folder without following links; outside of a session it is closed afterwards."""
        key = database, folder
        if self.opened is not None and key in self.opened:
            yield self.opened[key]
            return
        with (
            _opened(self.root) as root,
            _opened(database, root) as parent,
            _opened(folder, parent) as descriptor,
        ):
            if self.opened is not None:
                self.opened[key] = os.dup(descriptor)
            yield descriptor

    def make_database(self, database: str) -> None:
        """Create the missing folders of a database, durably."""
        with _opened(self.root) as root:
            _make_folder(root, database)
            with _opened(database, root) as parent:
                for folder in FOLDERS:
                    _make_folder(parent, folder)
                os.fsync(parent)
            os.fsync(root)

    def write(self, database: str, folder: str, name: str, content: bytes) -> None:
        """Write and synchronise a new file; the folder is not synchronised yet."""
        with self.writer(database, folder, name) as descriptor:
            write_all(descriptor, content)

    def write_many(
        self, database: str, folder: str, files: Sequence[tuple[str, bytes]]
    ) -> list[OSError | None]:
        """Write and synchronise new files; return the failure of each, or None."""
        failures: list[OSError | None] = []
        # A missing folder fails all of them.
        with self.session() as session, session.folder(database, folder):
            for name, content in files:
                try:
                    session.write(database, folder, name, content)
                    failures.append(None)
                except OSError as failure:
                    failures.append(failure)
                    if self.objects and failure.errno == errno.EIO:
                        # The other files would wait for the same store, one after the other.
                        break
        return failures + failures[-1:] * (len(files) - len(failures))

    @contextlib.contextmanager
    def writer(self, database: str, folder: str, name: str) -> Iterator[int]:
        """Create a file to write to, then synchronise it; remove it if anything fails."""
        with self.folder(database, folder) as parent:
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

    def open_file(self, database: str, folder: str, name: str) -> BinaryIO:
        """Open stored content for reading; in a folder, only a plain file."""
        with self.folder(database, folder) as parent:
            try:
                descriptor = os.open(name, _READ, dir_fd=parent)
            except OSError as failure:
                if failure.errno not in _UNSAFE:
                    raise
                raise FileUnsafe(
                    f"{name} is a link, or not a plain file",
                    hint="remove it from the root folder; the exchange follows no links",
                ) from failure
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise FileUnsafe(f"{folder}/{name} is not a plain file")
            return os.fdopen(descriptor, "rb", buffering=0)

    def load(self, database: str, folder: str, name: str, size: int) -> tuple[int, bytes]:
        """Return the size of stored content, and its bytes if the size is the given one."""
        with self.open_file(database, folder, name) as file:
            found = os.fstat(file.fileno()).st_size
            return found, file.read() if found == size else b""

    def digest(self, database: str, folder: str, name: str) -> tuple[int, str]:
        """Return size and sha256 of a file."""
        found = hashlib.sha256()
        size = 0
        with self.open_file(database, folder, name) as file:
            while chunk := file.read(CHUNK_BYTES):
                found.update(chunk)
                size += len(chunk)
        return size, found.hexdigest()

    def copy(self, source: Place, target: Storage, place: Place) -> None:
        """Copy content under a new name."""
        with contextlib.closing(self.open_file(*source)) as file, target.writer(*place) as copy:
            while chunk := file.read(CHUNK_BYTES):
                write_all(copy, chunk)

    def exists(self, database: str, folder: str, name: str) -> bool:
        """Check whether the name exists."""
        with contextlib.suppress(FileNotFoundError), self.folder(database, folder) as parent:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            return True
        return False

    def rename(self, database: str, source: tuple[str, str], target: tuple[str, str]) -> None:
        """Move a file from (folder, name) to another; across file systems by a copy."""
        with (
            self.folder(database, source[0]) as from_folder,
            self.folder(database, target[0]) as to_folder,
        ):
            try:
                os.rename(source[1], target[1], src_dir_fd=from_folder, dst_dir_fd=to_folder)
            except OSError as failure:
                if failure.errno != errno.EXDEV:
                    raise
                temporary = self.temporary_name()
                self.copy((database, *source), self, (database, target[0], temporary))
                try:
                    os.rename(temporary, target[1], src_dir_fd=to_folder, dst_dir_fd=to_folder)
                except BaseException:
                    self.unlink(database, target[0], temporary)
                    raise
                os.fsync(to_folder)
                os.unlink(source[1], dir_fd=from_folder)

    def unlink(self, database: str, folder: str, name: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(FileNotFoundError), self.folder(database, folder) as parent:
            os.unlink(name, dir_fd=parent)

    def put_aside(self, database: str, folder: str, name: str) -> None:
        """Move a file that no row refers to into Error, where nothing removes it."""
        aside = f"unlisted-{name}"[:255]
        if self.exists(database, "Error", aside):
            aside = f"unlisted-{secrets.token_hex(4)}-{name}"[:255]
        self.rename(database, (folder, name), ("Error", aside))
        self.synchronise(database, "Error")

    def synchronise(self, database: str, folder: str) -> None:
        """Make the names in a folder durable."""
        with self.folder(database, folder) as descriptor:
            os.fsync(descriptor)

    def names(self, database: str, folder: str) -> list[str]:
        """Return every name in a folder, including temporary ones."""
        with contextlib.suppress(FileNotFoundError), self.folder(database, folder) as descriptor:
            return [entry.name for entry in os.scandir(descriptor)]
        return []

    def databases(self) -> list[str]:
        """Return the folders in the root."""
        return sorted(
            entry.name
            for entry in os.scandir(self.root)
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        )


def open_storage(
    root: Path | str, settings: ExchangeSettings, second_root: Path | str | None = None
) -> Storage:
    """Return the storage of a root, a folder or `s3://bucket/prefix`, and of a second one."""
    if second_root is not None:
        from postroad.exchange.two_stores import TwoStores

        return TwoStores(open_storage(root, settings), open_storage(second_root, settings))
    if str(root).startswith("s3://"):
        # Imported only when it is used: importing boto3 takes long.
        from postroad.exchange.objects import ObjectStorage

        return ObjectStorage(str(root), settings)
    return Storage(Path(root).absolute())


@contextlib.contextmanager
def _opened(name: str | Path, parent: int | None = None) -> Iterator[int]:
    """Open a folder; below the root, links are refused."""
    try:
        descriptor = os.open(
            name, _OPEN_FOLDER | (0 if parent is None else os.O_NOFOLLOW), dir_fd=parent
        )
    except OSError as failure:
        if parent is None or failure.errno not in _UNSAFE:
            raise
        # The whole folder is unusable, not one message in it.
        raise StorageFailed(
            f"the folder {name} is a link, or not a folder",
            hint="put the folder back; the exchange follows no links",
        ) from failure
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_folder(parent: int, name: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o750, dir_fd=parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of the content."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
