"""Marks an object store as in use, and removes old objects that no row refers to.

Runs in separate tasks, because a store may be slow or not answer, and only on the server that
sweeps.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from postroad.exchange.errors import RootForeign, TakenOver
from postroad.exchange.files import OBJECT_PREFIX
from postroad.exchange.journal import DATABASES
from postroad.exchange.maintenance import RUNNING, Upkeep, is_left
from postroad.exchange.mover import Mover
from postroad.settings.exchange import ExchangeSettings

if TYPE_CHECKING:
    from postroad.exchange.objects import ObjectStorage

MARK_SECONDS = 20.0
INTERVALS = 24
# Objects that a running server has stored may be named by a call that has not ended.
RUNNING_AGE = timedelta(days=1)
FOREIGN_ALERT, RESTORED_ALERT = "exchange/store", "exchange/older"


class Collector(Upkeep):
    """Marks the store, and collects objects, until it is stopped."""

    def __init__(self, settings: ExchangeSettings, mover: Mover, objects: ObjectStorage) -> None:
        self._interval = settings.retention_interval.total_seconds()
        seconds = min(self._interval, 1.0)
        super().__init__("exchange object store", mover, seconds, self._work, "store_not_marked")
        self._objects = objects
        self._settings = settings
        self._due = time.monotonic() + self._interval
        self._marked_at: float | None = None
        self._collect_after = 0.0

    async def _work(self) -> None:
        """Mark the store and collect objects when they are due."""
        await self._mark()
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._interval
            await self._collect()
            self._due = time.monotonic() + INTERVALS * self._interval

    async def _mark(self) -> None:
        """Write the marker when it is due. Raises TakenOver, if another journal has written it."""
        if self._marked_at is not None and time.monotonic() - self._marked_at < MARK_SECONDS:
            return
        journal = self._journal
        (shared,) = await journal.rows(RUNNING)
        facts = self._objects.root_id or shared["root_id"], shared["served_seconds"], shared["run"]
        try:
            self._collect_after = await self._mover.in_thread(self._objects.mark, *facts)
        except RootForeign as foreign:
            await journal.call("report_running", journal.epoch)
            title = "another journal uses the object store of the exchange"
            text = f"The servers of this journal stop. {foreign}: {foreign.hint}."
            await journal.call("alerts.raise", FOREIGN_ALERT, "exchange", "critical", title, text)
            raise TakenOver(str(foreign), hint=foreign.hint) from foreign
        self._marked_at = time.monotonic()

    async def _collect(self) -> None:
        """Remove old objects that no row refers to."""
        journal, mover = self._journal, self._mover
        # The servers are read first: a server that is no longer running adds no more rows.
        (servers,) = await journal.rows(RUNNING)
        for row in await journal.rows(DATABASES):
            pages = self._objects.pages(row["id"])
            while (page := await mover.in_thread(next, pages, None)) is not None:
                # Nothing is removed unless the root is this journal's.
                await self._mark()
                if time.time() < self._collect_after or self.stopping.is_set():
                    return
                age, now = self._settings.orphan_age, datetime.now(UTC)
                running_age = max(age, RUNNING_AGE)
                names = [
                    name
                    for name, at in page
                    if at < now - (age if is_left(name, OBJECT_PREFIX, servers) else running_age)
                ]
                await mover.drop(row["id"], "", names)
        await journal.call("alerts.clear", RESTORED_ALERT)
