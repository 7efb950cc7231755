"""The root folder: always the same journal, whose servers share it.

`.lock` is held shared while a server runs. `.root.json` names the root; the journal has the same
name, so neither is used with another.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from pathlib import Path

from postroad.exchange.errors import FileUnsafe, RootForeign, RootLocked, storage_failure

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs"}


def root_name(path: Path) -> uuid.UUID | None:
    """Return the name of a root folder, None if it has none. Raises FileUnsafe, RootForeign."""
    marker = path / ".root.json"
    if marker.is_symlink():
        raise FileUnsafe(f"{marker} is a link", hint="remove it")
    try:
        return uuid.UUID(json.loads(marker.read_text(encoding="utf-8"))["root"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as failure:
        raise RootForeign(
            f"{marker} cannot be read",
            hint="restore it from a backup; its name is in exchange.server.root_id",
        ) from failure


def is_root_locked(path: Path) -> bool:
    """Return whether a server on this machine holds the lock of a root folder."""
    try:
        lock = os.open(path / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


class Root:
    """The root folder, locked while open: shared by the servers of one journal."""

    # Whether another server that starts may be about to name it.
    is_new = False

    def __init__(self, path: Path, *, allows_network: bool = False) -> None:
        self.path = path.absolute()
        self._allows_network = allows_network
        self._lock: int | None = None

    def open(self) -> uuid.UUID:
        """Make the folder, lock it and return its name. Raises RootLocked, RootForeign."""
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
            if not self._allows_network:
                self._refuse_network()
            self._lock = os.open(
                self.path / ".lock",
                os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o640,
            )
            try:
                # The first server names the folder, alone.
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._name()
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as held:
                self.close()
                raise RootLocked(
                    f"a server that shares it with no other uses the root folder {self.path}",
                    hint="stop it first; it has an older version, or starts just now",
                ) from held
            return self._found_name()
        except OSError as failure:
            self.close()
            raise storage_failure(
                failure, f"the root folder {self.path} cannot be used"
            ) from failure

    def is_alone(self, served_seconds: float, runs: list[str]) -> bool:
        """Return whether no other server uses the folder."""
        del served_seconds, runs
        if self._lock is None:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            # Also after a failure, which gives up the lock that was held.
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        return True

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _found_name(self) -> uuid.UUID:
        name = root_name(self.path)
        if name is None:
            self.close()
            raise RootLocked(f"another server is just creating {self.path}")
        return name

    def _name(self) -> None:
        if root_name(self.path) is not None:
            return
        name = uuid.uuid4()
        temporary = self.path / ".root.json.new"
        with temporary.open("w", encoding="utf-8") as file:
            json.dump({"root": str(name)}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.path / ".root.json")
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _refuse_network(self) -> None:
        best, kind = "", ""
        resolved = str(self.path.resolve())
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
                _, place, found, *_ = line.split(" ")
                is_above = resolved == place or resolved.startswith(place.rstrip("/") + "/")
                if is_above and len(place) >= len(best):
                    best, kind = place, found
        if kind in NETWORK_FILE_SYSTEMS:
            raise RootForeign(
                f"{self.path} is on a network file system ({kind}), where locks are not reliable",
                hint="use a local disk, or set POSTROAD_EXCHANGE__ALLOWS_NETWORK_ROOT=true",
            )
