"""The clock of the timeouts: seconds during which the server ran.

Setting the wall clock does not affect it. It advances by small steps only: while a server was
stopped (SIGSTOP, a sleeping laptop, a stalled disk) or not running, no time passes. The journal
stores how far it came.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_STEP_SECONDS = 5.0


class Uptime:
    """Continues from the value in the journal."""

    def __init__(
        self,
        begun_at: float,
        *,
        max_step: float = MAX_STEP_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._served = begun_at
        self._max_step = max_step
        self._monotonic = monotonic
        self._wall = wall
        self._last = monotonic()
        self._last_wall = wall()
        self._last_check = self._last

    def now(self) -> float:
        """Return the seconds so far; called at least once per step while the server runs."""
        moment = self._monotonic()
        self._served += min(max(moment - self._last, 0.0), self._max_step)
        self._last = moment
        return self._served

    def wall_jump(self) -> float:
        """Return by how many seconds the wall clock was set since the last call."""
        wall, moment = self._wall(), self._monotonic()
        jump = (wall - self._last_wall) - (moment - self._last_check)
        self._last_wall, self._last_check = wall, moment
        return jump
