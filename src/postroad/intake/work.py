"""Dispatches waiting work to tasks, and resolves every intermediate state."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import NamedTuple

from postroad.intake.cleanup import clean_up
from postroad.intake.engine import Engine
from postroad.intake.errors import StoreError
from postroad.intake.keys import temporary_name

logger = logging.getLogger(__name__)

BATCH_BYTES = 64 * 1024 * 1024
BATCH_UPLOADS = 100


class Work(NamedTuple):
    """Batches of ids that wait for a task: of servers to scan, of files by step."""

    scans: Sequence[list[int]] = ()
    transfers: Sequence[list[int]] = ()
    uploads: Sequence[list[int]] = ()
    notices: Sequence[list[int]] = ()


async def dispatch(engine: Engine, *server_ids: int) -> list[list[int]]:
    """Assign the due transfers of servers; returns them in batches."""
    limits = engine.settings.small_bytes, engine.settings.batch_files, BATCH_BYTES
    batches = []
    for server_id in server_ids:
        batches += await engine.journal.select("pick", server_id, engine.store.name, *limits)
    return [row["ids"] for row in batches]


async def reconcile(engine: Engine) -> Work:
    """Release expired leases, abort dead uploads and clean up; returns the work for tasks."""
    waiting = await engine.journal.select("reconcile")
    active = "select id from intake.sftp_servers where is_active order by id"
    transfers = await dispatch(engine, *(row["id"] for row in await engine.journal.rows(active)))
    uploads = [[one] for row in waiting if row["step"] == "upload" for one in row["ids"]]
    notices = [row["ids"] for row in waiting if row["step"] == "notify"]
    await clean_up(engine)
    await abort_dead_uploads(engine)
    return Work((), transfers, uploads, notices)


async def abort_dead_uploads(engine: Engine) -> int:
    """Abort uploads of files that ended without them; returns their number."""
    count = 0
    try:
        for row in await engine.journal.select("dead_uploads", BATCH_UPLOADS):
            for store in (engine.store, engine.temporary):
                if row["store"] == store.name:
                    await store.abort(row["object_key"], row["upload_id"])
                    count += 1
            await engine.journal.change("forget_upload", row["id"], row["upload_id"])
    except StoreError as failure:
        logger.warning("uploads_not_aborted", extra={"reason": failure.message})
    return count


async def abort_orphans(engine: Engine) -> int:
    """Abort old uploads and remove old temporary files that no file needs; returns their number.

    The worker died before it recorded the upload, the file was skipped or deleted, or an older
    version has left a file (`<id>.part`).
    """
    oldest = datetime.now(UTC) - engine.settings.orphan_age
    names = await engine.temporary.old_files(oldest, (".dat", ".part"))
    rows = await engine.journal.rows(
        "select f.id from intake.imported_files f where f.id::text = any (%s)"
        " and f.status in ('downloading', 'downloaded', 'uploading_to_minio')",
        [PurePath(name).stem for name in names],
    )
    unneeded = set(names) - set(map(temporary_name, rows))
    for name in unneeded:
        await engine.temporary.remove(name)
    count = len(unneeded)
    for store in (engine.store, engine.temporary):
        old = [one for one in await store.open_uploads() if one.begun_at < oldest]
        rows = await engine.journal.select("live_uploads", [one.upload_id for one in old])
        live = {row["live_uploads"] for row in rows}
        for one in old:
            if one.upload_id not in live:
                await store.abort(one.key, one.upload_id)
                count += 1
    return count
