"""Files that survive a power loss.

`fsync` of a file keeps its content, not its name: names belong to the folder, which has to be
synced after a file in it was created, linked or renamed.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

# A folder that this user may pass through but not read; a file system that syncs no folders.
_CANNOT_SYNC = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP}


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(folder: Path) -> None:
    """Make the names in a folder durable, and those of all folders above: any may be new."""
    for each in (folder.absolute(), *folder.absolute().parents):
        try:
            sync(each)
        except OSError as failure:
            if failure.errno not in _CANNOT_SYNC:
                raise


def create_file(path: Path, text: str) -> bool:
    """Create a file that only its owner reads, or keep the one there is; return which.

    Either is complete and durable, also when several processes do this at the same time.
    """
    if is_new := not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        _write(draft, text, 0o600)
        with suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    sync_folders(path.parent)
    return is_new


def replace_file(path: Path, text: str, mode: int) -> None:
    """Replace a file. A crash leaves the old file or the new one."""
    draft = path.with_name(f"{path.name}.new")
    _write(draft, text, mode)
    draft.replace(path)
    sync_folders(path.parent)


def _write(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    sync(path)
