"""One `postroad up` per data folder; the kernel releases the lock when the process ends."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Self

from postroad.errors import PostroadError
from postroad.postgres.locks import open_lock, try_lock
from postroad.postgres.server_user import make_data_folder


class AlreadyUp(PostroadError, code="already_up", kind="refused"):
    """Another `postroad up` runs on the same data folder."""


class UpLock:
    """Held while `up` runs; its file contains the process and its URL. A context manager."""

    def __init__(self, folder: Path, named_database: str | None) -> None:
        # One machine may serve several configured databases, but the embedded one only once.
        mark = named_database and hashlib.sha256(named_database.encode()).hexdigest()[:12]
        self._path = folder / (f"up-{mark}.lock" if mark else "up.lock")
        self._descriptor = -1

    def __enter__(self) -> Self:
        make_data_folder(self._path.parent)
        self._descriptor = open_lock(self._path)
        if not try_lock(self._descriptor):
            holder = self._read()
            os.close(self._descriptor)
            url = holder.get("url")
            who = f"pid {holder.get('pid', '?')}" + (f", {url}/console" if url else "")
            raise AlreadyUp(
                f"Postroad is already running on {self._path.parent} ({who})",
                hint="stop it with Ctrl-C first, or use another --data-folder",
            )
        self.write(None)
        return self

    def write(self, url: str | None) -> None:
        """Write the process that holds the lock, and its URL."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps({"pid": os.getpid(), "url": url}).encode(), 0)

    def _read(self) -> dict[str, object]:
        try:
            found = json.loads(os.pread(self._descriptor, 4096, 0))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
