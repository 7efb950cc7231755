"""Holding files while they are worked on: the heartbeat of their leases.

All files of a claim have one token. The heartbeat extends what is still in hand; a file whose lease
is gone is marked as lost, and its work is dropped at the next step, which the token refuses anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg

from postroad.intake.engine import Engine
from postroad.intake.errors import LeaseLost
from postroad.intake.journal import Row

__all__ = ["Hold", "claim"]

logger = logging.getLogger(__name__)

HEARTBEATS_PER_LEASE = 3


@dataclass(slots=True)
class Hold:
    """The files of one claim, their token, and which of them are still in hand."""

    engine: Engine
    rows: list[Row]
    token: int
    open: set[int] = field(default_factory=set)

    def check(self, file_id: int) -> None:
        """Raise LeaseLost when the file is not in hand any more."""
        if file_id not in self.open:
            raise LeaseLost(f"the lease of file {file_id} has ended")

    def let_go(self, file_id: int) -> None:
        """Stop holding a file: its step has ended."""
        self.open.discard(file_id)

    async def give_back(self, note: str | None = None, pause: timedelta | None = None) -> None:
        """Give back what is still in hand, as it is; the stored parts stay."""
        ids, self.open = sorted(self.open), set()
        if pause is not None:
            await self.engine.journal.call("postpone", ids, self.token, pause)
        if ids:
            await self.engine.journal.call("release", ids, self.token, note)

    async def _beat(self) -> None:
        lease = self.engine.settings.lease
        while True:
            await asyncio.sleep(lease.total_seconds() / HEARTBEATS_PER_LEASE)
            if not self.open:
                continue
            asked = sorted(self.open)
            try:
                held = await self.engine.journal.call("extend", asked, self.token, lease)
            except psycopg.Error as failure:
                logger.warning("heartbeat_failed", extra={"reason": str(failure).strip()})
                continue
            lost = set(asked) - set(held)
            if lost & self.open:
                logger.warning("leases_lost", extra={"files": sorted(lost)})
            self.open -= lost


@contextlib.asynccontextmanager
async def claim(engine: Engine, ids: list[int], step: str) -> AsyncIterator[Hold]:
    """Take files for a step and hold them while the block runs; the rest is given back."""
    rows = await engine.journal.select("claim", ids, step, engine.owner, engine.settings.lease)
    token = rows[0]["lease_token"] if rows else 0
    hold = Hold(engine, rows, token, {row["id"] for row in rows})
    beating = asyncio.create_task(hold._beat(), name="heartbeat")
    try:
        yield hold
    finally:
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating
        await hold.give_back()
