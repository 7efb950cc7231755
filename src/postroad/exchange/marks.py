"""Tells the journal that files are in place, many at once.

Who waits for the mark (a process that is to be DONE) waits for the batch that carries it; who does
not (a message just taken in) leaves it to a later one: an unmarked file that is in place is found
in place by the redo.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from postroad.exchange.placement import Move
from postroad.postgres.journal import Journal

__all__ = ["Marks"]

logger = logging.getLogger(__name__)

PLACED = (
    "select exchange.placed(p_epoch => %s, p_numbers => %s::bigint[], p_versions => %s::bigint[],"
    " p_processes => %s::text[])"
)
LAZY_SECONDS = 0.05
LAZY_MOST = 200


class Marks:
    """Collects marks while one batch is under way and sends them with the next."""

    def __init__(self, journal: Journal, epoch: int) -> None:
        self._journal = journal
        self._epoch = epoch
        self._moves: dict[int, int] = {}
        self._processes: set[str] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._running: asyncio.Task[None] | None = None
        self._urgent = asyncio.Event()

    async def place(self, moves: Sequence[Move], processes: Sequence[str] = ()) -> None:
        """Mark and wait until the journal has it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.place_later(moves, processes)
        self._urgent.set()
        await waiter

    def place_later(self, moves: Sequence[Move], processes: Sequence[str] = ()) -> None:
        """Mark without waiting."""
        for move in moves:
            self._moves[move.number] = max(move.version, self._moves.get(move.number, 0))
        self._processes.update(processes)
        if len(self._moves) >= LAZY_MOST:
            self._urgent.set()
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Send what is left."""
        self._urgent.set()
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        try:
            while self._moves or self._processes or self._waiters:
                try:
                    async with asyncio.timeout(LAZY_SECONDS):
                        await self._urgent.wait()
                except TimeoutError:
                    pass
                self._urgent.clear()
                await self._send()
        finally:
            self._running = None

    async def _send(self) -> None:
        moves, self._moves = self._moves, {}
        processes, self._processes = self._processes, set()
        waiters, self._waiters = self._waiters, []
        try:
            # In order of number, so that two batches cannot wait for each other in a circle.
            numbers = sorted(moves)
            await self._journal.call(
                PLACED,
                self._epoch,
                numbers,
                [moves[number] for number in numbers],
                sorted(processes),
            )
        except Exception as failure:  # noqa: BLE001 - told to those who wait; the sweep does the rest
            logger.warning("marks_not_sent", extra={"reason": str(failure).strip()})
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(failure)
            return
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
