"""Moves files to the folders that the journal names, and records that they are there.

Moves of one database that are requested at the same time are one batch, so that its folders are
synchronised once for all of them. Records are batched, too, and calls do not wait for them, because
the redo accepts a file that is already in place.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, TypeVar

import psycopg

from postroad.exchange.errors import ExchangeError, FileMissing, TakenOver, storage_failure
from postroad.exchange.files import Storage
from postroad.exchange.journal import ExchangeJournal
from postroad.exchange.moves import Move, redo
from postroad.service import AutoResetEvent

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# The folder for objects that no row refers to.
UNNAMED = (
    "select u.name from unnest(%s::text[]) u (name)"
    " where not exists (select from exchange.message m where m.object = u.name)"
)
OBJECT = "select m.object from exchange.message m where m.number = %s"
PENDING_PAGE = 500
RECORD_DELAY_SECONDS = 0.05
MAX_UNRECORDED = 200
MAX_REMEMBERED = 100_000

_Outcomes = list[ExchangeError | None]


class Mover:
    """Follows the plan of the journal, as one generation of the server."""

    def __init__(
        self, journal: ExchangeJournal, storage: Storage, threads: Executor, creates_databases: bool
    ) -> None:
        self.journal = journal
        self.storage = storage
        # The databases that are known to the journal and have their folders.
        self.opened: set[str] = set()
        # By the prefix that the ids of their processes have; see `exchange._process_id`.
        self.opened_by_prefix: dict[str, str] = {}
        self._creates_databases = creates_databases
        self._threads = threads
        # Moves that wait for the running batch of their database.
        self._waiting: dict[str, list[tuple[list[Move], asyncio.Future[_Outcomes]]]]
        self._waiting = defaultdict(list)
        self._running: dict[str, asyncio.Task[None]] = {}
        # The version of the last plan that was followed for a file.
        self._followed: OrderedDict[int, int] = OrderedDict()
        # The last logged reason why the files of a database cannot be moved.
        self._failures: dict[str, str] = {}
        # The moves and processes of the next record, and the calls that wait for it.
        self._placed: dict[int, tuple[int, str | None]] = {}
        self._processes: set[str] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._recording: asyncio.Task[None] | None = None
        self._is_urgent = AutoResetEvent()

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a blocking file operation. Raises StorageFailed, StorageFull."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except OSError as failure:
            raise storage_failure(failure, "the folders cannot be used") from failure

    async def open(self, database: str, *, may_create: bool = True, is_known: bool = False) -> None:
        """Ensure that a database is known and has its folders. Raises DatabaseNotFound.

        A new database is created if the settings allow it. `is_known`: the journal has just named
        it.
        """
        if database not in self.opened:
            may_create = may_create and self._creates_databases
            if not is_known:
                await self.journal.select("find_database", database, may_create)
            await self.in_thread(self.storage.make_database, database)
            self.opened.add(database)
            prefix = hashlib.sha256(database.encode()).hexdigest()[:8]
            self.opened_by_prefix[prefix] = database

    async def drop(self, database: str, folder: str, names: Sequence[str]) -> None:
        """Remove temporary files that no plan names; the next start removes any that remain."""
        if names and self.storage.objects:
            # The answer to a repeated call does not show that its first COMMIT, which was in doubt,
            # has named them.
            try:
                names = [row["name"] for row in await self.journal.rows(UNNAMED, list(names))]
            except (ExchangeError, psycopg.Error):
                return
        for name in names:
            with contextlib.suppress(ExchangeError):
                await self.in_thread(self.storage.unlink, database, folder, name)

    async def follow(
        self, moves: Sequence[Move], processes: Sequence[str] = (), *, is_awaited: bool = True
    ) -> None:
        """Perform moves and record them; wait for the record if it `is_awaited`.

        Raises StorageFailed or StorageFull; then the decided processes are FAILED and retried.
        """
        try:
            await self.place(moves)
        except ExchangeError as failure:
            for process in processes:
                await self.journal.decide("not_placed", process, str(failure))
            raise
        if is_awaited:
            await self.record(moves, processes)
        else:
            self.record_later(moves, processes)

    async def follow_pending(
        self, processes: list[str] | None = None, numbers: list[int] | None = None
    ) -> None:
        """Perform every pending move of the journal: the redo."""
        after = 0
        while True:
            rows = await self.journal.select("pending", processes, numbers, after, PENDING_PAGE)
            moves = [Move.of(row["pending"]) for row in rows]
            await self.follow_each(moves)
            if len(rows) < PENDING_PAGE:
                break
            after = moves[-1].number
        if processes:
            await self.record((), processes)

    async def follow_again(self, move: Move) -> None:
        """Plan the move of a file that is not in its folder again, and follow the plan."""
        await self.journal.call("plan_again", self.journal.epoch, move.number, move.folder)
        rows = await self.journal.select("pending", None, [move.number], 0, 1)
        await self.follow_each(
            [replace(Move.of(row["pending"]), is_new=move.is_new) for row in rows]
        )

    async def found(self, move: Move) -> Move:
        """Return a move with the object that its row names now: a migration may have copied it."""
        is_migrating = len(self.storage.stores) > 1
        rows = await self.journal.rows(OBJECT, move.number) if is_migrating else ()
        return replace(move, object=rows[0]["object"]) if rows else move

    async def follow_each(self, moves: Sequence[Move]) -> None:
        """Perform moves database by database; a failed one stays pending and stops no other."""
        for database in {move.database for move in moves}:
            here = [move for move in moves if move.database == database]
            processes = sorted({move.process for move in here if move.process})
            try:
                await self.follow(here, processes)
            except TakenOver:
                raise
            except ExchangeError as failure:
                # Retried at the next sweep, and logged only when the reason has changed.
                reason = str(failure)
                if self._failures.get(database) != reason:
                    self._failures[database] = reason
                    facts = {"database": database, "processes": processes, "reason": reason}
                    logger.warning("files_not_moved", extra=facts)
            else:
                self._failures.pop(database, None)

    async def place(self, moves: Sequence[Move]) -> list[Move]:
        """Perform moves; quarantine and return missing files. Raises StorageFailed, StorageFull."""
        lost = []
        for move, failure in zip(moves, await self.outcomes(moves), strict=True):
            if isinstance(failure, FileMissing):
                if await self.quarantine(move, str(failure), is_there=False):
                    lost.append(move)
            elif failure is not None:
                raise failure
        return lost

    async def quarantine(self, move: Move, reason: str, *, is_there: bool) -> bool:
        """Put a missing or changed file in quarantine and raise an alert.

        Returns False if a newer plan was decided, which another server may have followed.
        """
        if not is_there and (await self.found(move)).object != move.object:
            return False
        where = move.number, move.version or None
        found = reason, is_there, move.folder, move.is_new
        verdict = await self.journal.decide("quarantine", *where, *found)
        if verdict == "stale":
            return False
        facts = {"file": move.name, "reason": reason, "verdict": verdict}
        logger.error("file_in_quarantine", extra=facts)
        if is_there and verdict in ("parked", "kept"):
            await self.follow_pending(numbers=[move.number])
        return True

    async def outcomes(self, moves: Sequence[Move]) -> list[ExchangeError | None]:
        """Perform moves and make them durable; return the failure of each, or None."""
        loop = asyncio.get_running_loop()
        futures: dict[str, asyncio.Future[_Outcomes]] = {}
        for database in {move.database for move in moves}:
            here = [move for move in moves if move.database == database]
            futures[database] = loop.create_future()
            self._waiting[database].append((here, futures[database]))
            if database not in self._running:
                self._running[database] = loop.create_task(self._move(database))
        found = {database: iter(await future) for database, future in futures.items()}
        return [next(found[move.database]) for move in moves]

    async def _move(self, database: str) -> None:
        try:
            while jobs := self._waiting.pop(database, None):
                current = [move for some, _ in jobs for move in some if self._is_current(move)]
                try:
                    done = await asyncio.get_running_loop().run_in_executor(
                        self._threads, redo, self.storage, database, current
                    )
                except Exception as failure:  # noqa: BLE001 - raised in every waiting call
                    for _, future in jobs:
                        if not future.done():
                            future.set_exception(failure)
                    continue
                found = dict(zip((id(move) for move in current), done, strict=True))
                for some, future in jobs:
                    if not future.done():
                        future.set_result([found.get(id(move)) for move in some])
        finally:
            del self._running[database]

    def _is_current(self, move: Move) -> bool:
        """Whether no newer plan of the file was followed: an older one would undo it."""
        if move.version < self._followed.get(move.number, 0):
            return False
        self._followed[move.number] = move.version
        self._followed.move_to_end(move.number)
        while len(self._followed) > MAX_REMEMBERED:
            self._followed.popitem(last=False)
        return True

    async def record(self, moves: Sequence[Move], processes: Sequence[str] = ()) -> None:
        """Record that files are in place, and wait until the journal has it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.record_later(moves, processes)
        self._is_urgent.set()
        await waiter

    def record_later(self, moves: Sequence[Move], processes: Sequence[str] = ()) -> None:
        """Record that files are in place, without waiting."""
        for move in moves:
            if move.version >= self._placed.get(move.number, (0, None))[0]:
                self._placed[move.number] = move.version, move.folder
        self._processes.update(processes, (move.process for move in moves if move.process))
        if len(self._placed) >= MAX_UNRECORDED:
            self._is_urgent.set()
        if self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(self._record())

    async def close(self) -> None:
        """Finish the running moves and record them."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._is_urgent.set()
        if self._recording is not None:
            await self._recording

    async def _record(self) -> None:
        try:
            while self._placed or self._processes or self._waiters:
                await self._is_urgent.wait(RECORD_DELAY_SECONDS)
                await self._record_batch()
        finally:
            self._recording = None

    async def _record_batch(self) -> None:
        # In order of number, so that two batches cannot deadlock.
        placed = dict(sorted(self._placed.items()))
        processes, waiters = sorted(self._processes), self._waiters
        self._placed, self._processes, self._waiters = {}, set(), []
        failure: Exception | None = None
        try:
            versions = [version for version, _ in placed.values()]
            folders = [folder for _, folder in placed.values()]
            parameters = list(placed), versions, processes, folders
            await self.journal.call("placed", self.journal.epoch, *parameters)
        except Exception as raised:  # noqa: BLE001 - raised in the waiting calls; the sweep retries
            failure = raised
            logger.warning("moves_not_recorded", extra={"reason": str(failure).strip()})
        for waiter in waiters:
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)
