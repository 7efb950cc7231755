"""What happens to an imported file at its source: left, deleted, or moved to a folder.

Only the version that was imported is touched: a file that has changed meanwhile is left, because it
is another version and will be imported itself. A file that is gone already is fine. A folder to
move to is made; a name that is taken there gets the id of the file.
"""

from __future__ import annotations

import logging

from postroad.intake.alert_keys import cleanup_alert
from postroad.intake.engine import Engine
from postroad.intake.errors import FileChanged, FileVanished, RemoteFileError, SourceError
from postroad.intake.journal import Row
from postroad.intake.moving import folder_below, move_folder
from postroad.intake.settling import check_version, remote_path
from postroad.intake.source import Source, answering
from postroad.intake.temporary import remove_temporary

__all__ = ["clean_up"]

logger = logging.getLogger(__name__)

CLEANUPS_AT_ONCE = 200


async def clean_up(engine: Engine) -> int:
    """Do what is due at the sources; returns how many files were cleaned up."""
    rows = await engine.journal.select("due_cleanups", CLEANUPS_AT_ONCE)
    by_server: dict[int, list[Row]] = {}
    for row in rows:
        by_server.setdefault(row["server_id"], []).append(row)
    done = 0
    for server_id, waiting in by_server.items():
        server = await engine.server(server_id)
        for row in waiting:
            await remove_temporary(engine, row)
        if server["after_import"] == "leave":
            for row in waiting:
                await engine.journal.call("cleaned", row["id"])
                done += 1
            continue
        try:
            async with engine.lend(server) as source:
                await folder_below(source, server)
                for row in waiting:
                    done += await _clean(engine, server, row, source)
        except SourceError as failure:
            await engine.server_failed(server, failure)
    return done


async def _clean(engine: Engine, server: Row, row: Row, source: Source) -> bool:
    path = remote_path(server, row)
    note = None
    try:
        await check_version(source, path, row)
        async with answering(row["filename"], source):
            if server["after_import"] == "delete":
                await source.sftp.remove(path)
                note = "deleted at the source"
            else:
                note = f"moved to {await _move(server, row, source, path)}"
        await _remove_marker(server, path, source)
    except FileVanished:
        note = "gone from the source already"
    except FileChanged:
        note = "left at the source: it is another version by now"
    except RemoteFileError as failure:
        logger.warning("not_cleaned", extra={"file_id": row["id"], "reason": failure.message})
        state = await engine.journal.call(
            "not_cleaned", row["id"], failure.message, engine.settings.max_attempts
        )
        if state == "given_up":
            await engine.alert(
                cleanup_alert(row["id"]),
                "warning",
                f"File {row['id']} was imported and could not be removed at its source",
                failure.message,
            )
        return False
    await engine.journal.call("cleaned", row["id"], note)
    return True


async def _move(server: Row, row: Row, source: Source, path: bytes) -> str:
    target = move_folder(server) + b"/" + bytes(row["path"])
    await source.sftp.makedirs(target.rpartition(b"/")[0], exist_ok=True)
    if await source.sftp.lexists(target):
        target += b"." + str(row["id"]).encode()
    await source.sftp.rename(path, target)
    return target.decode("utf-8", "backslashreplace")


async def _remove_marker(server: Row, path: bytes, source: Source) -> None:
    if server["done_suffix"]:
        try:
            async with answering("its done-file", source):
                await source.sftp.remove(path + server["done_suffix"].encode())
        except RemoteFileError as failure:
            logger.info("done_file_left", extra={"reason": failure.message})
