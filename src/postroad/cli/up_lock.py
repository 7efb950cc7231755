"""One `postroad up` per data folder; the kernel releases the lock when the process ends."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from postroad.errors import PostroadError
from postroad.postgres.locks import open_lock, try_lock
from postroad.postgres.server_user import make_data_folder


class AlreadyUp(PostroadError, code="already_up", kind="refused"):
    """Another `postroad up` runs on the same data folder."""


@contextmanager
def up_lock(folder: Path, named_database: str | None) -> Iterator[Callable[[str | None], None]]:
    """Hold the lock while `up` runs; its file contains the process id and the URL of `up`."""
    # One machine may serve several configured databases, but the embedded one only once.
    mark = named_database and hashlib.sha256(named_database.encode()).hexdigest()[:12]
    descriptor = open_lock(make_data_folder(folder) / (f"up-{mark}.lock" if mark else "up.lock"))

    def set_url(url: str | None) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "url": url}).encode(), 0)

    try:
        if not try_lock(descriptor):
            holder = _read(descriptor)
            url = holder.get("url")
            who = f"pid {holder.get('pid', '?')}" + (f", {url}/console" if url else "")
            raise AlreadyUp(
                f"Postroad is already running on {folder} ({who})",
                hint="stop it with Ctrl-C first, or use another --data-folder",
            )
        set_url(None)
        yield set_url
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
