"""Who may deliver, when several sessions of a bridge have taken batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Turns"]


class Turns:
    """Who may deliver: one after the other, in the order in which turns were drawn."""

    def __init__(self) -> None:
        self.taking = asyncio.Lock()
        self._last = asyncio.Event()
        self._last.set()

    def next(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Draw a turn; whoever enters it waits until the one before has ended."""
        before, self._last = self._last, asyncio.Event()
        return self._turn(before, self._last)

    @asynccontextmanager
    async def _turn(self, before: asyncio.Event, mine: asyncio.Event) -> AsyncIterator[None]:
        await before.wait()
        # After a failure nobody's turn comes any more: all hands are cancelled.
        yield
        mine.set()
