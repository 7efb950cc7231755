"""Upkeep: what the server does by itself, at its start and at every sweep.

Time-outs, moves that are pending, the disk, the wall clock, and what Log need not keep any longer.
Nothing here fails the server: what cannot be done now is tried at the next sweep.
"""

from __future__ import annotations

import contextlib
import logging
import os
from datetime import timedelta
from typing import Any

import psycopg

from postroad.exchange.desk import Desk
from postroad.exchange.errors import ExchangeError, TakenOver
from postroad.exchange.files import FOLDERS, TEMPORARY_PREFIX
from postroad.exchange.placement import Move
from postroad.service import Service

__all__ = ["Upkeep", "recover"]

logger = logging.getLogger(__name__)

SWEEP = "select exchange.sweep(p_epoch => %s, p_now => %s, p_is_restart => %s)"
TICK = "select exchange.tick(p_epoch => %s, p_now => %s)"
MARK_OUTDATED = "select exchange.mark_outdated(p_epoch => %s, p_kept => %s, p_limit => %s) as move"
FORGET_OUTDATED = (
    "select * from exchange.forget_outdated(p_epoch => %s, p_kept => %s, p_limit => %s)"
)
DATABASES = "select d.id from exchange.database d order by d.id"
TEMPORARIES = "select v.temporary from exchange.move v where v.temporary is not null"
RAISE = "select alerts.raise(%s, 'exchange', %s, %s, %s)"
CLEAR = "select alerts.clear(%s)"
UNSERVED = "select database, recipient from exchange.unserved(p_after => %s)"

# Plans of calls that are under way are theirs; an older one has lost its call.
HAS_OPERATED = (
    "select exists (select from exchange.move v where v.planned_at < exchange.now() - %s)"
)
STALE = timedelta(seconds=0.5)

RETENTION_PAGE = 500
UNSERVED_AFTER = timedelta(minutes=5)
MAX_UNSERVED_NAMED = 10
JUMP_SECONDS = 60.0
NEARLY_FULL_BYTES, NEARLY_FULL_PART = 1 << 30, 0.05
FULL_BYTES, FULL_PART = 16 << 20, 0.01
PASSING = (psycopg.Error, ExchangeError, OSError)


async def recover(desk: Desk) -> None:
    """Bring everything to a sound state before the first call: the same redo as in normal work."""
    rows = await desk.journal.rows(DATABASES)
    pending = {row["temporary"] for row in await desk.journal.rows(TEMPORARIES)}
    for row in rows:
        try:
            await desk.in_thread(desk.storage.make_database, row["id"])
            await desk.in_thread(_drop_temporaries, desk, row["id"], pending)
            desk.databases.add(row["id"])
        except (ExchangeError, OSError) as failure:
            # One database's folders are broken; the others are served.
            logger.warning(
                "folders_not_usable", extra={"database": row["id"], "reason": str(failure)}
            )
    await sweep(desk, is_restart=True)
    await desk.follow_pending()
    with contextlib.suppress(ExchangeError):
        await clean(desk)


async def sweep(desk: Desk, *, is_restart: bool = False) -> int:
    """End what time has run out for, and move its files. Returns how many."""
    count = 0
    while process := await desk.journal.call(SWEEP, desk.epoch, desk.time.now(), is_restart):
        count += 1
        logger.warning("process_timed_out", extra={"process_id": process})
        with contextlib.suppress(ExchangeError):
            await desk.follow_pending([process])
    return count


async def clean(desk: Desk) -> int:
    """Remove from Log what is older than the retention. Returns how many messages."""
    kept: timedelta = desk.settings.log_kept
    count = 0
    while rows := await desk.journal.rows(MARK_OUTDATED, desk.epoch, kept, RETENTION_PAGE):
        moves = [Move.of(row["move"]) for row in rows]
        count += await desk.follow_each(moves)
    while True:
        (gone,) = await desk.journal.rows(FORGET_OUTDATED, desk.epoch, kept, RETENTION_PAGE)
        if not gone["messages"] and not gone["processes"]:
            return count


class Upkeep(Service):
    """Sweeps until it is stopped."""

    def __init__(self, desk: Desk) -> None:
        super().__init__("exchange upkeep")
        self._desk = desk
        self._cleaned_at = desk.time.now()
        # What the administrator knows, by key; nothing at the start: an alert may be older.
        self._told: dict[str, bool] = {}

    async def run(self) -> None:
        """Sweep at each interval; the clock of the time-outs advances here at the least."""
        self.announce_ready()
        interval = self._desk.settings.sweep_interval.total_seconds()
        while not await self.pause(min(interval, 1.0)):
            self._desk.time.now()
            await self._follow_operators()
            if self._is_due(interval):
                try:
                    await self._sweep()
                    self.signals.emit("swept")
                except TakenOver:
                    raise
                except PASSING as failure:
                    logger.warning("sweep_failed", extra={"reason": str(failure).strip()})

    async def _follow_operators(self) -> None:
        """Move what an administrator's command has decided, within a second or so."""
        try:
            if await self._desk.journal.call(HAS_OPERATED, STALE):
                await self._desk.follow_pending()
        except TakenOver:
            raise
        except PASSING as failure:
            logger.info("moves_wait", extra={"reason": str(failure).strip()})

    def _is_due(self, interval: float) -> bool:
        now = self._desk.time.now()
        if now - getattr(self, "_swept_at", -interval) < interval:
            return False
        self._swept_at = now
        return True

    async def _sweep(self) -> None:
        desk = self._desk
        await desk.journal.call(TICK, desk.epoch, desk.time.now())
        await sweep(desk)
        await desk.follow_pending()
        await self._watch_disk()
        await self._watch_clock()
        await self._watch_mailboxes()
        if desk.time.now() - self._cleaned_at >= desk.settings.retention_interval.total_seconds():
            self._cleaned_at = desk.time.now()
            await clean(desk)

    async def _watch_disk(self) -> None:
        desk = self._desk
        disk = os.statvfs(desk.storage.root)
        free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        desk.is_full = free < min(FULL_BYTES, total * FULL_PART)
        await self._tell(
            "exchange/disk",
            free < min(NEARLY_FULL_BYTES, total * NEARLY_FULL_PART),
            "error",
            "the disk of the exchange is nearly full",
            f"{free // (1 << 20)} MiB are left under {desk.storage.root}.",
        )

    async def _watch_clock(self) -> None:
        jump = self._desk.time.wall_jump()
        if abs(jump) >= JUMP_SECONDS:
            # Each jump is one of its own.
            self._told.pop("exchange/clock", None)
        await self._tell(
            "exchange/clock",
            abs(jump) >= JUMP_SECONDS,
            "warning",
            f"the clock of the server jumped by {jump:+.0f} seconds",
            "Time-outs are not disturbed; stamps in histories and files may look odd.",
        )

    async def _watch_mailboxes(self) -> None:
        """Alert on messages that no client can fetch: a mistyped recipient or database."""
        rows = await self._desk.journal.rows(UNSERVED, UNSERVED_AFTER)
        named = [
            f"{row['database']} for {row['recipient']}" if row["recipient"] else row["database"]
            for row in rows[:MAX_UNSERVED_NAMED]
        ]
        more = f" and {len(rows) - len(named)} more" if len(rows) > len(named) else ""
        await self._tell(
            "exchange/unserved",
            bool(rows),
            "warning",
            "messages wait for a recipient or database that no client serves",
            f"{', '.join(named)}{more}. Correct the sender, or grant the right: postroad exchange"
            " clients add --recipient / --database.",
        )

    async def _tell(self, key: str, is_wrong: bool, severity: str, title: str, text: str) -> None:
        if self._told.get(key) is is_wrong:
            return
        if is_wrong:
            await self._desk.journal.call(RAISE, key, severity, title, text)
        else:
            await self._desk.journal.call(CLEAR, key)
        self._told[key] = is_wrong


def _drop_temporaries(desk: Desk, database: str, pending: set[Any]) -> None:
    for folder in FOLDERS:
        for name in list(desk.storage.names(database, folder)):
            if name.startswith(TEMPORARY_PREFIX) and name not in pending:
                desk.storage.unlink(database, folder, name)
