"""Maintenance: what a server does at its start and at every sweep.

Timeouts, pending moves, the disk, the wall clock and the retention of Log. Of several servers one
sweeps; when it dies another takes over within seconds. A failure here does not stop the server: the
next sweep tries again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg

from postroad.errors import PostroadError
from postroad.exchange.errors import ExchangeError, TakenOver
from postroad.exchange.files import FOLDERS, TEMPORARY_PREFIX
from postroad.exchange.journal import DATABASES, NOW
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.service import Service
from postroad.settings.exchange import ExchangeSettings

logger = logging.getLogger(__name__)

TEMPORARIES = "select v.temporary from exchange.move v where v.temporary is not null"
RUNNING = (
    "select s.root_id, s.served_seconds, s.runs[1] as run, s.epoch as last,"
    " array(select m.epoch from exchange.member m order by 1) as running"
    " from exchange.server s"
)

OLD_PLANS = (
    "select v.number from exchange.move v where v.number > %s"
    " and v.planned_at < exchange.now() - %s order by v.number limit 500"
)
STALE = timedelta(seconds=0.5)

# The outcome is decided and all files are in place: only the state DONE is not recorded.
FINISHED = (
    "select p.id from exchange.process p where p.state in ('CLEANUP', 'FAILED') and not exists"
    " (select from exchange.message m join exchange.move v on v.number = m.number"
    " where m.process_id = p.id) limit 500"
)

RETENTION_PAGE = 500
UNSERVED_AFTER = timedelta(minutes=5)
MAX_UNSERVED_NAMED = 10
JUMP_SECONDS = 60.0
NEARLY_FULL_BYTES, NEARLY_FULL_PART = 1 << 30, 0.05
FULL_BYTES, FULL_PART = 16 << 20, 0.01


class Upkeep(Service):
    """Background work of a server; the next round repeats what failed.

    There is a pause of `seconds` before each round; a round may change the next one. With an
    `event`, as which its failures are logged, only the server that sweeps does it.
    """

    def __init__(
        self,
        name: str,
        mover: Mover,
        seconds: float,
        do_round: Callable[[], Awaitable[None]],
        event: str | None = None,
    ) -> None:
        super().__init__(name)
        self._mover = mover
        self._journal = mover.journal
        self.seconds = self._usual_seconds = seconds
        self._do_round = do_round
        self._event = event

    async def run(self) -> None:
        """Work in rounds until it is stopped."""
        self.announce_ready()
        while not await self.pause(self.seconds):
            self.seconds = self._usual_seconds
            if self._event is None:
                await self._do_round()
            elif self._journal.is_sweeper:
                await self.attempt(self._event, self._do_round)

    async def attempt(
        self, event: str, work: Callable[[], Awaitable[object]], level: int = logging.WARNING
    ) -> None:
        """Do work; log a failure, unless this server was removed. Raises TakenOver."""
        try:
            await work()
        except TakenOver:
            raise
        except (psycopg.Error, PostroadError, OSError) as failure:
            logger.log(level, event, extra={"reason": str(failure).strip()})


class Maintenance(Upkeep):
    """Recovers at the start, then sweeps until it is stopped."""

    def __init__(self, settings: ExchangeSettings, mover: Mover) -> None:
        self._interval = settings.sweep_interval.total_seconds()
        super().__init__("exchange upkeep", mover, min(self._interval, 1.0), self._round)
        self._settings = settings
        self._swept_at: float | None = None
        self._cleaned_at = time.monotonic()
        self._wall_ahead = time.time() - time.monotonic()
        # The servers that were running when temporary files were last removed.
        self._running: list[int] | None = None
        self._alerts: dict[str, bool] = {}

    async def recover(self, *, is_first: bool) -> None:
        """Bring rows and files to a consistent state before the first call, by the usual redo.

        `is_first`: no other server runs, so processes that were ready to commit are in doubt.
        """
        for row in await self._journal.rows(DATABASES):
            await self._use_folders(row["id"], self._mover.open(row["id"], is_known=True))
        await self.tick()
        if is_first:
            await self._drop_temporaries()
            await self._end_timed_out(is_restart=True)
            await self._mover.follow_pending()
            with contextlib.suppress(ExchangeError):
                await self._clean()

    async def _round(self) -> None:
        """Perform pending work every second, and sweep at each interval if this server sweeps."""
        if self._journal.is_sweeper:
            await self.attempt("moves_wait", self._follow_old_plans, logging.INFO)
        if self._swept_at is None or time.monotonic() - self._swept_at >= self._interval:
            self._swept_at = time.monotonic()
            await self.attempt("sweep_failed", self._sweep)

    async def beat(self) -> None:
        """Report that the server runs and end timed-out processes; neither needs the files."""
        await self.attempt("tick_failed", self.tick, logging.INFO)
        if self._journal.is_sweeper and self._mover.storage.objects:
            await self.attempt("sweep_failed", self._end_timed_out, logging.INFO)

    async def tick(self) -> None:
        """Report that this server runs, and take over the sweeping if no other server does it."""
        journal, was_sweeper = self._journal, self._journal.is_sweeper
        try:
            journal.is_sweeper = await journal.call("report_running", journal.epoch)
        except BaseException:
            journal.is_sweeper = False
            raise
        if journal.is_sweeper and not was_sweeper:
            logger.info("exchange_sweeps", extra={"epoch": journal.epoch})
            self._running = None
            # In the meantime another server has watched.
            self._alerts.clear()
            self._wall_ahead = time.time() - time.monotonic()

    async def _follow_old_plans(self, after: int = 0) -> int:
        """Perform older moves, such as those of a command; return the last number."""
        numbers = [row["number"] for row in await self._journal.rows(OLD_PLANS, after, STALE)]
        if numbers:
            await self._mover.follow_pending(numbers=numbers)
        return numbers[-1] if numbers else 0

    async def _sweep(self) -> None:
        if self._journal.is_sweeper:
            await self._end_timed_out()
            after = 0
            while after := await self._follow_old_plans(after):
                pass
            if finished := await self._journal.rows(FINISHED):
                await self._mover.record((), [row["id"] for row in finished])
            await self._drop_temporaries()
            await self._watch_clock()
            await self._watch_mailboxes()
            kept = self._settings.retention_interval.total_seconds()
            if time.monotonic() - self._cleaned_at >= kept:
                self._cleaned_at = time.monotonic()
                await self._clean()
        await self._watch_disk()
        self.signals.emit("swept")

    async def _end_timed_out(self, *, is_restart: bool = False) -> None:
        """End the processes whose time is up, and move their files."""
        journal = self._journal
        while process := await journal.call("sweep", journal.epoch, NOW, is_restart):
            logger.warning("process_timed_out", extra={"process_id": process})
            if self._mover.storage.objects and not is_restart:
                continue
            with contextlib.suppress(ExchangeError):
                await self._mover.follow_pending([process])

    async def _clean(self) -> None:
        """Remove from Log what is older than the retention."""
        page = self._journal.epoch, self._settings.log_kept, RETENTION_PAGE
        while rows := await self._journal.select("mark_outdated", *page):
            await self._mover.follow_each([Move.of(row["mark_outdated"]) for row in rows])
        while any((await self._journal.select("forget_outdated", *page))[0].values()):
            pass

    async def _drop_temporaries(self) -> None:
        """Remove the temporary files of servers that have ended, unless a plan refers to them."""
        # The servers are read first: a server that is no longer running adds no more plans.
        (servers,) = await self._journal.rows(RUNNING)
        if servers["running"] == self._running or not self._mover.storage.has_folders:
            return
        pending = {row["temporary"] for row in await self._journal.rows(TEMPORARIES)}

        def drop(database: str) -> None:
            storage = self._mover.storage
            for folder in FOLDERS:
                for name in storage.names(database, folder):
                    if name not in pending and is_left(name, TEMPORARY_PREFIX, servers):
                        storage.unlink(database, folder, name)

        for row in await self._journal.rows(DATABASES):
            await self._use_folders(row["id"], self._mover.in_thread(drop, row["id"]))
        self._running = servers["running"]

    async def _use_folders(self, database: str, work: Awaitable[None]) -> None:
        try:
            await work
        except (ExchangeError, OSError) as failure:
            # The folders of one database are broken; the others are served.
            self._mover.opened.discard(database)
            facts = {"database": database, "reason": str(failure)}
            logger.warning("folders_not_usable", extra=facts)

    async def _watch_disk(self) -> None:
        storage = self._mover.storage
        if not storage.has_folders:
            return
        free, total = await self._mover.in_thread(storage.free_space)
        is_full = free < min(FULL_BYTES, total * FULL_PART)
        storage.is_full = is_full and not storage.stores[0].objects
        await self._alert(
            "exchange/disk",
            free < min(NEARLY_FULL_BYTES, total * NEARLY_FULL_PART),
            "error",
            "the disk of the exchange is nearly full",
            f"{free // (1 << 20)} MiB are left under {storage.address}.",
        )

    async def _watch_clock(self) -> None:
        ahead = time.time() - time.monotonic()
        jump, self._wall_ahead = ahead - self._wall_ahead, ahead
        if abs(jump) >= JUMP_SECONDS:
            # Each jump is a separate alert.
            self._alerts.pop("exchange/clock", None)
        await self._alert(
            "exchange/clock",
            abs(jump) >= JUMP_SECONDS,
            "warning",
            f"the clock of the server jumped by {jump:+.0f} seconds",
            "Timeouts are not affected; timestamps in histories and files may be inconsistent.",
        )

    async def _watch_mailboxes(self) -> None:
        """Alert on messages that no client can fetch: a mistyped recipient or database."""
        rows = await self._journal.select("unserved", UNSERVED_AFTER)
        named = [
            f"{row['database']} for {row['recipient']}" if row["recipient"] else row["database"]
            for row in rows[:MAX_UNSERVED_NAMED]
        ]
        more = f" and {len(rows) - len(named)} more" if len(rows) > len(named) else ""
        await self._alert(
            "exchange/unserved",
            bool(rows),
            "warning",
            "messages wait for a recipient or database that no client serves",
            f"{', '.join(named)}{more}. Correct the sender, or grant the right: postroad exchange"
            " clients add --recipient / --database.",
        )

    async def _alert(self, key: str, is_wrong: bool, severity: str, title: str, text: str) -> None:
        """Raise or clear an alert when its condition changes."""
        if self._alerts.get(key) is is_wrong:
            return
        if is_wrong:
            await self._journal.call("alerts.raise", key, "exchange", severity, title, text)
        else:
            await self._journal.call("alerts.clear", key)
        self._alerts[key] = is_wrong


def is_left(name: str, prefix: str, servers: dict[str, Any]) -> bool:
    """Return whether a name was given by a server that has ended, which its generation shows."""
    owner = re.match(rf"{re.escape(prefix)}(\d+)\.", name)
    epoch = int(owner[1]) if owner else 0
    is_running = epoch > servers["last"] or epoch in servers["running"]
    return name.startswith(prefix) and not is_running
