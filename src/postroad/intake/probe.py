"""Checks of a server for an operator: a login, and the listing of a folder."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from typing import Any

import asyncssh

from postroad.intake.engine import Engine
from postroad.intake.errors import IntakeError, SourceError
from postroad.intake.keys import shown_name
from postroad.intake.listing import entries_of
from postroad.intake.source import Source, encoded, size_and_mtime

MAX_ENTRIES = 1000
_KINDS = {
    asyncssh.FILEXFER_TYPE_DIRECTORY: "folder",
    asyncssh.FILEXFER_TYPE_REGULAR: "file",
    asyncssh.FILEXFER_TYPE_SYMLINK: "link",
}


async def try_server(engine: Engine, server_id: int) -> dict[str, Any]:
    """Log in and list the watched folder; returns whether it works, or the problem."""
    server = await engine.server(server_id)
    try:
        source = await engine.connect(server)
    except SourceError as failure:
        await engine.server_failed(server, failure)
        return {"works": False, "problem": failure.message, "hint": failure.hint}
    try:
        entries = await _entries(source, encoded(server["directory"]), 1)
    except IntakeError as failure:
        return {"works": False, "problem": failure.message, "hint": failure.hint}
    finally:
        await source.close()
    await engine.works("server", server_id)
    return {"works": True, "host_key": source.host_key, "is_empty": not entries}


async def browse(engine: Engine, server_id: int, path: str | None = None) -> list[dict[str, Any]]:
    """List a folder of a server, by default the watched one. Raises SourceError, FileVanished."""
    server = await engine.server(server_id)
    folder = encoded(path or server["directory"])
    async with engine.lend(server) as source:
        return await _entries(source, folder, MAX_ENTRIES)


async def _entries(source: Source, folder: bytes, limit: int) -> list[dict[str, Any]]:
    found = []
    async for name, attributes in entries_of(source, folder, shown_name(folder)):
        size, mtime = size_and_mtime(attributes)
        mode = attributes.permissions
        found.append(
            {
                "name": shown_name(name),
                "kind": _KINDS.get(attributes.type, "other"),
                "size": size,
                "modified_at": _moment(mtime),
                "mode": stat.filemode(mode) if mode is not None else None,
            }
        )
        if len(found) >= limit:
            break
    return sorted(found, key=lambda one: str(one["name"]))


def _moment(mtime: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(mtime, UTC)
    except (OverflowError, ValueError, OSError):
        return None
