"""Holding files while they are worked on.

All files of a claim have one token. A file whose lease is lost is dropped at the next step of its
work, which the token refuses anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg

from postroad.intake.engine import Engine
from postroad.intake.errors import LeaseLost
from postroad.intake.journal import Row
from postroad.lease import AsyncHolder, Keeper

__all__ = ["Hold", "claim"]


class Hold:
    """The files of one claim and their token."""

    def __init__(self, engine: Engine) -> None:
        self.rows: list[Row] = []
        self.token = 0
        self.engine = engine
        keeper: Keeper[int, Row] = Keeper(engine.settings.lease)
        self.holder = AsyncHolder(
            keeper, self._extend, lambda _: None, transient=(psycopg.Error, OSError)
        )

    def check(self, file_id: int) -> None:
        """Raise LeaseLost when the file is not held any more."""
        if not self.holder.holds(file_id):
            raise LeaseLost(f"the lease of file {file_id} has ended")

    def let_go(self, file_id: int) -> None:
        """Stop holding a file: its step has ended."""
        self.holder.release(file_id)

    async def give_back(self, note: str | None = None, pause: timedelta | None = None) -> None:
        """Give back the files that are still held, as they are; the stored parts stay."""
        ids = sorted(self.holder.keys())
        for file_id in ids:
            self.holder.release(file_id)
        if pause is not None:
            await self.engine.journal.call("postpone", ids, self.token, pause)
        if ids:
            await self.engine.journal.call("release", ids, self.token, note)

    async def _extend(self, files: dict[int, Row]) -> set[int]:
        asked = sorted(files)
        lease = self.engine.settings.lease
        return files.keys() - set(
            await self.engine.journal.call("extend", asked, self.token, lease)
        )


@contextlib.asynccontextmanager
async def claim(engine: Engine, ids: list[int], step: str) -> AsyncIterator[Hold]:
    """Claim files for a step and hold them while the block runs; the rest is given back."""
    hold = Hold(engine)
    since = hold.holder.now()
    hold.rows = await engine.journal.select("claim", ids, step, engine.owner, engine.settings.lease)
    hold.token = hold.rows[0]["lease_token"] if hold.rows else 0
    hold.holder.claim(((row["id"], row) for row in hold.rows), since)
    async with hold.holder:
        try:
            yield hold
        finally:
            await hold.give_back()
