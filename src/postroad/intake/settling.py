"""How the try of one file ends: done, gone, changed, failed; and whose fault it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from postroad.intake.alert_keys import file_alert
from postroad.intake.engine import Engine
from postroad.intake.errors import (
    FileChanged,
    FileVanished,
    KeyRefused,
    LeaseLost,
    ObjectDiffers,
    RemoteFileError,
    SourceError,
    StoreError,
    TemporaryFolderFull,
    UploadLost,
)
from postroad.intake.holding import Hold
from postroad.intake.journal import Row
from postroad.intake.source import Attributes, Source, answering, attributes_of

__all__ = ["check_version", "remote_path", "same_version", "settle"]

logger = logging.getLogger(__name__)


async def settle(engine: Engine, hold: Hold, row: Row, work: Callable[[], Awaitable[None]]) -> bool:
    """Do the work of one file; True when it succeeded, otherwise how it ended is noted.

    Raises SourceError, StoreError and TemporaryFolderFull: those concern every file, and this one
    loses no try.
    """
    file_id = row["id"]
    try:
        await work()
    except LeaseLost:
        logger.info("lease_lost", extra={"file_id": file_id})
    except FileVanished as failure:
        await engine.journal.call("conclude", file_id, hold.token, "vanished", failure.message)
    except FileChanged as failure:
        await engine.journal.call("conclude", file_id, hold.token, "superseded", failure.message)
    except (SourceError, TemporaryFolderFull, asyncio.CancelledError):
        raise
    except (UploadLost, ObjectDiffers) as failure:
        # The upload begins anew; a file to which this happens again and again fails at last.
        if row["upload_id"]:
            await engine.journal.call("forget_upload", file_id, row["upload_id"])
        await _failed(engine, hold, file_id, failure.message)
    except KeyRefused as failure:
        # Another try would end in the same way: a person has to look.
        problem = "; ".join(filter(None, (failure.message, failure.hint)))
        await _failed(engine, hold, file_id, problem, is_final=True)
    except StoreError:
        raise
    except RemoteFileError as failure:
        await _failed(engine, hold, file_id, failure.message)
    except Exception as failure:
        logger.exception("transfer_failed", extra={"file_id": file_id})
        await _failed(engine, hold, file_id, f"unforeseen: {type(failure).__name__}: {failure}")
    else:
        return True
    hold.let_go(file_id)
    return False


async def _failed(
    engine: Engine, hold: Hold, file_id: int, problem: str, *, is_final: bool = False
) -> None:
    status = await engine.journal.call(
        "fail", file_id, hold.token, problem, engine.settings.max_attempts, is_final
    )
    if status == "failed":
        logger.error("file_failed", extra={"file_id": file_id, "reason": problem})
        await engine.alert(
            file_alert(file_id), "error", f"File {file_id} could not be imported", problem
        )


def remote_path(server: Row, row: Row) -> bytes:
    """Return the path of a file at its server."""
    root: bytes = server["directory"].encode("utf-8", "surrogateescape")
    return root + b"/" + bytes(row["path"])


async def check_version(source: Source, path: bytes, row: Row) -> None:
    """Look whether the file at the source is the version of the row. Raises FileChanged."""
    async with answering(row["filename"], source):
        found = attributes_of(await source.sftp.stat(path))
    same_version(found, row)


def same_version(found: Attributes, row: Row) -> None:
    """Compare what a server tells with the version of the row. Raises FileChanged."""
    if (found.size, found.mtime) != (row["filesize"], row["mtime"]):
        raise FileChanged(
            f"{row['filename']} has changed at the source: {found.size} bytes of mtime "
            f"{found.mtime}, discovered with {row['filesize']} of {row['mtime']}"
        )
