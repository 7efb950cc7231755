"""The way out of every state between: what nobody works on any more is taken up again.

Leases that ended are given back by the journal; files that wait for a step get a task; uploads that
nobody will complete are aborted at the store; the clean-up at the sources goes on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime

from postroad.intake.cleaning import clean_up
from postroad.intake.engine import Engine
from postroad.intake.errors import StoreError

__all__ = ["Work", "dispatch", "reconcile"]

logger = logging.getLogger(__name__)

BATCH_BYTES = 64 * 1024 * 1024
UPLOADS_AT_ONCE = 100


@dataclass(slots=True)
class Work:
    """What waits for tasks: batches of file ids for each step."""

    transfers: list[list[int]] = field(default_factory=list)
    uploads: list[list[int]] = field(default_factory=list)
    notices: list[list[int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.transfers or self.uploads or self.notices)


async def dispatch(engine: Engine, server_id: int | None = None) -> Work:
    """Hand out the transfers that are due, of one server or of all."""
    servers = [server_id]
    if server_id is None:
        rows = await engine.journal.rows(
            "select id from intake.sftp_servers where is_active order by id"
        )
        servers = [row["id"] for row in rows]
    work = Work()
    for one in servers:
        batches = await engine.journal.select(
            "pick",
            one,
            engine.store.name,
            engine.settings.small_bytes,
            engine.settings.batch_files,
            BATCH_BYTES,
        )
        work.transfers += [row["ids"] for row in batches]
    return work


async def reconcile(engine: Engine) -> Work:
    """Take up what is stuck; returns the work that waits for tasks."""
    waiting = await engine.journal.select("reconcile")
    work = await dispatch(engine)
    work.uploads += [[one] for row in waiting if row["step"] == "upload" for one in row["ids"]]
    work.notices += [row["ids"] for row in waiting if row["step"] == "notify"]
    await clean_up(engine)
    await abort_dead_uploads(engine)
    return work


async def abort_dead_uploads(engine: Engine) -> int:
    """Abort uploads at the store that nobody will complete; returns how many."""
    count = 0
    try:
        for row in await engine.journal.select("dead_uploads", UPLOADS_AT_ONCE):
            if row["store"] == engine.store.name:
                await engine.store.abort(row["object_key"], row["upload_id"])
                count += 1
            await engine.journal.call("forget_upload", row["id"], row["upload_id"])
    except StoreError as failure:
        logger.warning("uploads_not_aborted", extra={"reason": failure.message})
    return count


async def abort_orphans(engine: Engine) -> int:
    """Abort old uploads at the store that belong to no file at all; returns how many.

    They come from a worker that died between beginning an upload and noting it.
    """
    eldest = datetime.now(UTC) - engine.settings.orphan_age
    old = [one for one in await engine.store.open_uploads() if one.begun_at < eldest]
    rows = await engine.journal.select("live_uploads", [one.upload_id for one in old])
    live = {row["live_uploads"] for row in rows}
    orphans = [one for one in old if one.upload_id not in live]
    for one in orphans:
        await engine.store.abort(one.key, one.upload_id)
    return len(orphans)
