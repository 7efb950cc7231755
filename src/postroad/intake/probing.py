"""Looking at a server by hand: whether a login works, and what is in a folder."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from typing import Any

from asyncssh import FILEXFER_TYPE_DIRECTORY, FILEXFER_TYPE_REGULAR, FILEXFER_TYPE_SYMLINK

from postroad.intake.engine import Engine
from postroad.intake.errors import IntakeError, SourceError
from postroad.intake.keys import shown_name
from postroad.intake.source import answering, attributes_of

__all__ = ["browse", "try_server"]

ENTRIES_MOST = 1000
_KINDS = {
    FILEXFER_TYPE_DIRECTORY: "folder",
    FILEXFER_TYPE_REGULAR: "file",
    FILEXFER_TYPE_SYMLINK: "link",
}


async def try_server(engine: Engine, server_id: int) -> dict[str, Any]:
    """Log in and look into the watched folder; the answer says what works and what does not."""
    server = await engine.server(server_id)
    try:
        source = await engine.connect(server)
    except SourceError as failure:
        await engine.server_failed(server, failure)
        return {"works": False, "problem": failure.message, "hint": failure.hint}
    try:
        entries = await _entries(source, server["directory"].encode(), 1)
    except IntakeError as failure:
        return {"works": False, "problem": failure.message, "hint": failure.hint}
    finally:
        await source.close()
    await engine.journal.call("server_works", server_id)
    return {"works": True, "host_key": source.host_key, "is_empty": not entries}


async def browse(engine: Engine, server_id: int, path: str | None = None) -> list[dict[str, Any]]:
    """List a folder of a server, by default the watched one. Raises SourceError, FileVanished."""
    server = await engine.server(server_id)
    folder = (path or server["directory"]).encode("utf-8", "surrogateescape")
    async with engine.lend(server) as source:
        return await _entries(source, folder, ENTRIES_MOST)


async def _entries(source: Any, folder: bytes, most: int) -> list[dict[str, Any]]:
    found = []
    async with answering(shown_name(folder), source):
        async for entry in source.sftp.scandir(folder):
            if entry.filename in (b".", b".."):
                continue
            facts = attributes_of(entry.attrs)
            mode = entry.attrs.permissions
            found.append(
                {
                    "name": shown_name(entry.filename),
                    "kind": _KINDS.get(entry.attrs.type, "other"),
                    "size": facts.size,
                    "modified_at": _moment(facts.mtime),
                    "mode": stat.filemode(mode) if mode is not None else None,
                }
            )
            if len(found) >= most:
                break
    return sorted(found, key=lambda one: str(one["name"]))


def _moment(mtime: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(mtime, UTC)
    except (OverflowError, ValueError, OSError):
        return None
