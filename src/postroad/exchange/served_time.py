"""The clock of the time-outs: seconds in which the server served.

It does not know the wall clock, so setting that forwards or back does not disturb. It advances by
small steps only: a server that was stopped (SIGSTOP, a sleeping laptop, a stalled disk) or not
running at all did not serve, so nobody's time ran out meanwhile. The journal keeps how far it came.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["ServedTime"]

STEP_MOST_SECONDS = 5.0


class ServedTime:
    """Counts on from where the journal left off."""

    def __init__(
        self,
        begun_at: float,
        *,
        step_most: float = STEP_MOST_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._served = begun_at
        self._step_most = step_most
        self._monotonic = monotonic
        self._wall = wall
        self._last = monotonic()
        self._last_wall = wall()
        self._mark = self._last

    def now(self) -> float:
        """Return the seconds served so far; called at least once per step while serving."""
        moment = self._monotonic()
        self._served += min(max(moment - self._last, 0.0), self._step_most)
        self._last = moment
        return self._served

    def wall_jump(self) -> float:
        """Return by how much the wall clock went astray since the last call, in seconds."""
        wall, mark = self._wall(), self._monotonic()
        astray = (wall - self._last_wall) - (mark - self._mark)
        self._last_wall, self._mark = wall, mark
        return astray
