"""The root folder belongs to one journal, whose servers share it.

`.lock` is held shared while a server runs. `.root.json` names the root; the journal has the same
name, so neither is used with another.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from postroad.durable import replace_file
from postroad.exchange.errors import FileUnsafe, RootForeign, RootLocked, storage_failure
from postroad.postgres.locks import share_lock, try_lock

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs"}


class Root:
    """The root folder, locked while open: shared by the servers of one journal."""

    # Whether another server that starts may be about to refer to it.
    is_new = False
    # Its name, once the journal has accepted it.
    root_id: uuid.UUID | None = None
    _lock: int | None = None

    def __init__(self, root: Path) -> None:
        self.root = root

    def root_name(self) -> uuid.UUID | None:
        """Return the name of the root, which is also in the journal; None if it has none.

        Raises FileUnsafe, RootForeign.
        """
        marker = self.root / ".root.json"
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

    def is_in_use(self) -> bool:
        """Return whether a server uses the root; for a folder, a server on this machine."""
        try:
            lock = os.open(self.root / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not try_lock(lock)
        finally:
            os.close(lock)

    def open_root(self, allows_network: bool = False) -> uuid.UUID:
        """Create the folder, lock it and return its name. Raises RootLocked, RootForeign."""
        try:
            self.root.mkdir(mode=0o750, parents=True, exist_ok=True)
            if not allows_network:
                self._refuse_network()
            self._lock = os.open(
                self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640
            )
            try:
                # The first server names the folder while no other server can start.
                if try_lock(self._lock):
                    if self.root_name() is None:
                        named = json.dumps({"root": str(uuid.uuid4())})
                        replace_file(self.root / ".root.json", named, 0o640)
                    self.is_new = not any(self.root.glob("*/"))
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as held:
                self.close()
                raise RootLocked(
                    f"a server that shares it with no other uses the root folder {self.root}",
                    hint="stop it first; it is an older version, or is just starting",
                ) from held
            if (name := self.root_name()) is None:
                self.close()
                raise RootLocked(f"another server is creating {self.root}")
        except OSError as failure:
            self.close()
            raise storage_failure(
                failure, f"the root folder {self.root} cannot be used"
            ) from failure
        return name

    def is_alone(self, served_seconds: float, runs: Sequence[str]) -> bool:
        """Return whether no other server uses the root."""
        del served_seconds, runs
        if self._lock is None:
            return False
        try:
            return try_lock(self._lock)
        finally:
            # Also after a failure, because trying releases the lock that was held.
            share_lock(self._lock)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _refuse_network(self) -> None:
        best, kind = "", ""
        resolved = str(self.root.resolve())
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
                _, place, found, *_ = line.split(" ")
                is_above = resolved == place or resolved.startswith(place.rstrip("/") + "/")
                if is_above and len(place) >= len(best):
                    best, kind = place, found
        if kind in NETWORK_FILE_SYSTEMS:
            raise RootForeign(
                f"{self.root} is on a network file system ({kind}), where locks are not reliable",
                hint="use a local disk, or set POSTROAD_EXCHANGE__ALLOWS_NETWORK_ROOT=true",
            )
