"""What every part of a serving exchange shares: the journal, the folders, the clock, the marks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from postroad.exchange.errors import (
    DatabaseNotFound,
    ExchangeError,
    FileMissing,
    StorageFull,
    storage_failure,
)
from postroad.exchange.files import Storage
from postroad.exchange.marks import Marks
from postroad.exchange.placement import Move, Placement
from postroad.exchange.served_time import ServedTime
from postroad.postgres.journal import Journal
from postroad.settings.exchange import ExchangeSettings

__all__ = ["Desk"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

FIND_DATABASE = "select (exchange.find_database(p_id => %s, p_may_create => %s)).id"
QUARANTINE = (
    "select exchange.quarantine(p_epoch => %s, p_number => %s, p_version => %s, p_reason => %s,"
    " p_is_there => %s, p_folder => %s, p_is_new => %s)"
)
NOT_PLACED = "select exchange.not_placed(p_epoch => %s, p_process => %s, p_reason => %s)"
PENDING = (
    "select exchange.pending(p_processes => %s::text[], p_numbers => %s::bigint[], p_after => %s,"
    " p_limit => %s) as move"
)
PENDING_PAGE = 500


@dataclass
class Desk:
    """One serving generation of the exchange."""

    settings: ExchangeSettings
    journal: Journal
    storage: Storage
    threads: Executor
    placement: Placement
    marks: Marks
    time: ServedTime
    epoch: int
    is_full: bool = False
    databases: set[str] = field(default_factory=set)
    # Why the files of a database cannot be moved, as it was logged.
    not_moved: dict[str, str] = field(default_factory=dict)
    # The database and the owner of processes.
    processes: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run what blocks on the disk; its failures become the room's."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)
        except OSError as failure:
            raise storage_failure(failure, "the folders cannot be used") from failure

    async def know_database(self, database: str) -> None:
        """Make sure that a database is known and has its folders. Raises DatabaseNotFound."""
        if database in self.databases:
            return
        await self.journal.call(FIND_DATABASE, database, self.settings.creates_databases)
        await self.in_thread(self.storage.make_database, database)
        self.databases.add(database)

    async def is_known(self, database: str) -> bool:
        """Tell whether a database is known, making nothing."""
        if database in self.databases:
            return True
        try:
            await self.journal.call(FIND_DATABASE, database, False)
        except DatabaseNotFound:
            return False
        await self.in_thread(self.storage.make_database, database)
        self.databases.add(database)
        return True

    def refuse_when_full(self) -> None:
        """Refuse new work while there is no room for what would follow from it."""
        if self.is_full:
            raise StorageFull(
                "the disk is nearly full; what is under way may end, nothing new begins",
                hint="make room on the disk of the root folder, then send the request again",
            )

    async def follow(self, moves: Sequence[Move], *, process: str | None = None) -> None:
        """Bring files to where they belong and tell the journal; a lost file is put in quarantine.

        Raises StorageFailed or StorageFull; then a decided process is FAILED and tried again.
        """
        try:
            await self.place(moves)
        except ExchangeError as failure:
            if process is not None:
                await self.journal.change(NOT_PLACED, self.epoch, process, str(failure))
            raise
        processes = [process] if process is not None else []
        await self.marks.place(moves, processes)

    async def place(self, moves: Sequence[Move], *, is_new: bool = False) -> list[Move]:
        """Bring files to where they belong; what is lost is reported and returned.

        `is_new`: see `quarantine`. Raises StorageFailed or StorageFull.
        """
        lost = []
        try:
            await self.placement.place(moves)
        except FileMissing:
            for move in moves:
                try:
                    await self.placement.place([move])
                except FileMissing as missing:
                    await self.quarantine(move, str(missing), is_there=False, is_new=is_new)
                    lost.append(move)
        return lost

    async def follow_pending(
        self,
        processes: list[str] | None = None,
        numbers: list[int] | None = None,
        *,
        is_new: bool = False,
    ) -> int:
        """Do what the journal still has pending: the redo. Returns how many moves it did.

        `is_new`: see `quarantine`.
        """
        done = after = 0
        while True:
            rows = await self.journal.rows(PENDING, processes, numbers, after, PENDING_PAGE)
            moves = [Move.of(row["move"]) for row in rows]
            done += await self.follow_each(moves, is_new=is_new)
            if len(rows) < PENDING_PAGE:
                break
            after = moves[-1].number
        if processes:
            await self.marks.place((), processes)
        return done

    async def follow_each(self, moves: Sequence[Move], *, is_new: bool = False) -> int:
        """Do moves database by database; one that fails stays pending and stops no other."""
        done = 0
        for database in {move.database for move in moves}:
            here = [move for move in moves if move.database == database]
            done += await self._follow_some(here, is_new)
        return done

    async def _follow_some(self, moves: list[Move], is_new: bool) -> int:
        processes = sorted({move.process for move in moves if move.process})
        try:
            await self.place(moves, is_new=is_new)
        except ExchangeError as failure:
            # The other databases go on; this one is tried again at the next sweep, and logged when
            # the reason is another one.
            database, reason = moves[0].database, str(failure)
            if self.not_moved.get(database) != reason:
                self.not_moved[database] = reason
                facts = {"database": database, "processes": processes, "reason": reason}
                logger.warning("files_not_moved", extra=facts)
            for process in processes:
                await self.journal.change(NOT_PLACED, self.epoch, process, str(failure))
            return 0
        self.not_moved.pop(moves[0].database, None)
        await self.marks.place(moves, processes)
        return len(moves)

    async def quarantine(
        self, move: Move, reason: str, *, is_there: bool, is_new: bool = False
    ) -> None:
        """Put a file that is not what was taken in aside, and tell the administrator.

        `is_new` says that its process is just being started, so that nobody has read it there.
        """
        verdict = await self.journal.change(
            QUARANTINE,
            self.epoch,
            move.number,
            move.version or None,
            reason,
            is_there,
            move.folder,
            is_new,
        )
        logger.error(
            "file_in_quarantine", extra={"file": move.name, "reason": reason, "verdict": verdict}
        )
        if is_there and verdict in ("parked", "kept"):
            await self.follow_pending(numbers=[move.number])
