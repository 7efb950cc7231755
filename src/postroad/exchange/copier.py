"""Copies the files of the second store to the root, while servers serve.

One server does it: the one that sweeps, when all that run have the same root. A copy is complete
and compared before the journal refers to it, and the file is removed after that, so a server may
die at any moment. It leaves an object or a temporary file that no row refers to,
which is removed later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from postroad.exchange.errors import FileCorrupt
from postroad.exchange.files import Storage
from postroad.exchange.maintenance import Upkeep
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.settings.exchange import ExchangeSettings

logger = logging.getLogger(__name__)

WRITING = "select m.epoch from exchange.member m where m.root_id <> %s"
TO_COPY = (
    "select exchange._move(m, null) as move from exchange.message m"
    " where m.number > %s and (m.object is not null) = %s and m.folder is not null"
    " and not exists (select from exchange.move v where v.number = m.number)"
    " order by m.number limit %s"
)
PAGE = 8
# A scan for what is left reads the rows of all messages: once in so many sweep intervals.
INTERVALS = 12


class Copier(Upkeep):
    """Copies page by page until nothing is left in the second store; then checks at intervals."""

    def __init__(self, settings: ExchangeSettings, mover: Mover) -> None:
        super().__init__("exchange migration", mover, 1.0, self._copy_page, "files_not_copied")
        self._page_seconds = PAGE / settings.copies_per_second
        self._idle_seconds = INTERVALS * settings.sweep_interval.total_seconds()
        # Of this scan of all rows: the last number, and how many were copied.
        self._after = self._count = 0

    async def _copy_page(self) -> None:
        """Copy the next page. A file that was just moved fails, and is copied by the next scan."""
        journal, mover = self._journal, self._mover
        root, second = mover.storage.stores
        if await journal.rows(WRITING, root.root_id):
            return
        mover.storage.refuse_when_full()
        rows = await journal.rows(TO_COPY, self._after, not root.objects, PAGE)
        if not rows:
            self.seconds = self._page_seconds if self._count else self._idle_seconds
            self._after = self._count = 0
            return
        moves = [Move.of(row["move"]) for row in rows]
        copying = (mover.in_thread(_copy, mover.storage, move) for move in moves)
        outcomes = await asyncio.gather(*copying, return_exceptions=True)
        facts = list[tuple[Any, ...]]()
        for move, outcome in zip(moves, outcomes, strict=True):
            if isinstance(outcome, str):
                facts.append((move.number, move.object, move.folder, outcome))
            else:
                reason = {"file": move.name, "database": move.database, "reason": str(outcome)}
                logger.warning("file_not_copied", extra=reason)
        columns = [[fact[place] for fact in facts] for place in range(4)]
        rows = await journal.select("record_copies", journal.epoch, *columns)
        plans = [Move.of(row["record_copies"]) for row in rows]
        lost = await mover.place(plans)
        mover.record_later(plans)
        # Files are removed by their plans.
        done = {plan.number for plan in plans if plan not in lost and second.objects}
        for move in moves:
            if move.number in done:
                await mover.drop(move.database, "", [move.stored_name])
        self._after, self._count = moves[-1].number, self._count + len(plans)
        self.seconds = self._page_seconds


def _copy(storage: Storage, move: Move) -> str:
    """Copy a file to the root; return its new name. Raises OSError, FileCorrupt, FileUnsafe."""
    where, name = (move.database, str(move.folder)), storage.temporary_name()
    storage.copy((*where, move.stored_name), storage, (*where, name))
    # What is in quarantine is kept as it is.
    is_bad = move.folder == "Error"
    right = storage.digest(*where, move.stored_name) if is_bad else (move.size, move.sha256)
    if storage.digest(*where, name) != right:
        storage.unlink(*where, name)
        raise FileCorrupt(f"{move.name}: the content has changed")
    if not storage.stores[0].objects:
        # No row refers to its object once the copy is recorded.
        storage.synchronise(*where)
    return name
