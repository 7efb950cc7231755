"""Files that survive a power loss.

`fsync` of a file keeps its content, not its name: names belong to the folder, which has to be
synced after a file in it was created, linked or renamed.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

OWNER_ONLY = 0o600
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
    absolute = folder.absolute()
    for each in (absolute, *absolute.parents):
        try:
            sync(each)
        except OSError as failure:
            if failure.errno not in _CANNOT_SYNC:
                raise


def create_file(path: Path, text: str) -> bool:
    """Create a file that only its owner reads; return False if there is one, which is kept.

    Either is complete and durable, also when several processes do this at the same time.
    """
    is_new = not path.exists()
    if is_new:
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        _write(draft, text)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            is_new = False
        finally:
            draft.unlink()
    sync_folders(path.parent)
    return is_new


def replace_file(path: Path, text: str) -> None:
    """Replace a file that only its owner reads. A crash leaves the old file or the new one."""
    draft = path.with_name(f"{path.name}.new")
    _write(draft, text)
    draft.replace(path)
    sync_folders(path.parent)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
