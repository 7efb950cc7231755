"""Cleans up imported files at their source: they are left, deleted, or moved to a folder.

Only the imported version is touched: a file that has changed since will be imported again. The
target folder is created; if the name is taken there, the id of the file is appended. Folders are
compared by their real paths, because one folder can have several names: relative to the login
folder, absolute, or over a link.
"""

from __future__ import annotations

import logging
import posixpath

from postroad.intake import errors
from postroad.intake.engine import Engine
from postroad.intake.keys import shown_name, temporary_name
from postroad.intake.source import Source, answering, check_version, encoded, remote_path
from postroad.postgres.calls import Row

logger = logging.getLogger(__name__)

BATCH_FILES = 200


async def clean_up(engine: Engine) -> int:
    """Perform the due work at the sources; returns the number of cleaned-up files."""
    done = 0
    rows = await engine.journal.select("due_cleanups", BATCH_FILES)
    async for server, waiting in engine.by_server(rows):
        for row in waiting:
            await engine.temporary.remove(temporary_name(row))
        if server["after_import"] == "leave":
            for row in waiting:
                await engine.journal.change("cleaned", row["id"])
            done += len(waiting)
            continue
        try:
            async with engine.lend(server) as source:
                await folder_below(source, server)
                for row in waiting:
                    done += await _clean(engine, server, row, source)
        except errors.SourceError as failure:
            logger.info("cleanup_postponed", extra={"reason": failure.message})
    return done


async def _clean(engine: Engine, server: Row, row: Row, source: Source) -> bool:
    path = remote_path(server, row)
    try:
        await check_version(source, path, row)
        async with answering(row["filename"], source):
            if server["after_import"] == "delete":
                await source.sftp.remove(path)
                note = "deleted at the source"
            else:
                note = f"moved to {await _move(server, row, source, path)}"
        if server["done_suffix"]:
            try:
                async with answering("its done-file", source):
                    await source.sftp.remove(path + server["done_suffix"].encode())
            except errors.RemoteFileError as failure:
                logger.info("done_file_left", extra={"reason": failure.message})
    except errors.FileVanished:
        note = "already gone from the source"
    except errors.FileChanged:
        note = "left at the source: it is another version now"
    except errors.RemoteFileError as failure:
        logger.warning("not_cleaned", extra={"file_id": row["id"], "reason": failure.message})
        given = row["id"], failure.message, engine.settings.max_attempts
        if await engine.journal.change("not_cleaned", *given) == "given_up":
            title = f"File {row['id']} was imported and could not be removed at its source"
            await engine.alert("cleanup", row["id"], title, failure.message, "warning")
        return False
    await engine.journal.change("cleaned", row["id"], note)
    return True


async def _move(server: Row, row: Row, source: Source, path: bytes) -> str:
    target = _move_folder(server) + b"/" + bytes(row["path"])
    await source.sftp.makedirs(target.rpartition(b"/")[0], exist_ok=True)
    if await source.sftp.lexists(target):
        target += b"." + str(row["id"]).encode()
    await source.sftp.rename(path, target)
    return target.decode("utf-8", "backslashreplace")


def _move_folder(server: Row) -> bytes:
    return posixpath.join(encoded(server["directory"]), encoded(server["move_to"]))


def move_folder_invalid() -> errors.MoveFolderInvalid:
    """Return the error for a target folder that is the watched folder."""
    return errors.MoveFolderInvalid(
        "imported files cannot be moved into the watched folder",
        hint="use a folder below it or elsewhere; one below it is not scanned",
    )


async def folder_below(source: Source, server: Row) -> bytes | None:
    """Return the target folder below the watched one, or None. Raises MoveFolderInvalid."""
    if server["after_import"] != "move":
        return None
    watched = await _real_path(source, encoded(server["directory"]))
    below = posixpath.relpath(await _real_path(source, _move_folder(server)), watched)
    if below == b".":
        raise move_folder_invalid()
    return None if below.split(b"/")[0] == b".." else below


async def _real_path(source: Source, path: bytes) -> bytes:
    """Return the real path; for a folder that does not exist yet, that of its parent is used."""
    try:
        async with answering(shown_name(path), source):
            return await source.sftp.realpath(path)
    except errors.RemoteFileError:
        parent, name = posixpath.split(posixpath.normpath(path))
        if not name:
            return path
        return posixpath.join(await _real_path(source, parent or b"."), name)
