"""Where imported files are moved to at their source, told by real paths.

Two names may be of one folder: one from where the login begins and one from the root, or one over a
link. Only the server knows, so it is asked. A folder that is not there yet is where its parent is.
"""

from __future__ import annotations

import posixpath

from postroad.intake.errors import MoveFolderInvalid, RemoteFileError
from postroad.intake.journal import Row
from postroad.intake.keys import shown_name
from postroad.intake.source import Source, answering

__all__ = ["folder_below", "move_folder", "move_folder_invalid"]


def move_folder(server: Row) -> bytes:
    """Return the folder at the server into which imported files are moved."""
    root: bytes = server["directory"].encode("utf-8", "surrogateescape")
    return posixpath.join(root, server["move_to"].encode("utf-8", "surrogateescape"))


def move_folder_invalid() -> MoveFolderInvalid:
    """Say that files would be moved to where they are."""
    return MoveFolderInvalid(
        "imported files cannot be moved into the folder that is watched",
        hint="name a folder below it or elsewhere; one below it is not looked into",
    )


async def folder_below(source: Source, server: Row) -> bytes | None:
    """Tell where below the watched folder files are moved to; None when elsewhere or not at all.

    Raises MoveFolderInvalid when it is the watched folder itself.
    """
    if server["after_import"] != "move":
        return None
    watched = await _real(source, server["directory"].encode("utf-8", "surrogateescape"))
    below = posixpath.relpath(await _real(source, move_folder(server)), watched)
    if below == b".":
        raise move_folder_invalid()
    return None if below.split(b"/")[0] == b".." else below


async def _real(source: Source, path: bytes) -> bytes:
    try:
        async with answering(shown_name(path), source):
            return await source.sftp.realpath(path)
    except RemoteFileError:
        parent, name = posixpath.split(posixpath.normpath(path))
        if not name:
            return path
        return posixpath.join(await _real(source, parent or b"."), name)
