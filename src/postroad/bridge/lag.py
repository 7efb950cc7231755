"""When a lag deserves an alert: it is old, and it grows. Pure.

A lag that is long but shrinks is a bridge that catches up; one that is short and grows is a burst.
The all-clear comes when the oldest waiting message is younger than half the limit.
"""

from __future__ import annotations

from collections import deque
from datetime import timedelta

__all__ = ["LagWatch"]

WINDOW_SECONDS = 30.0


class LagWatch:
    """Watches one bridge; fed with a look every few seconds."""

    def __init__(self, limit: timedelta, window_seconds: float = WINDOW_SECONDS) -> None:
        self._limit = limit.total_seconds()
        self._window = window_seconds
        self._looks: deque[tuple[float, int]] = deque()
        self._waiting_since: float | None = None
        self.is_lagging = False

    def look(self, now: float, lag: int, age: timedelta | None) -> bool | None:
        """Take note; return True when an alert is due, False for the all-clear, else None."""
        self._looks.append((now, lag))
        while len(self._looks) > 1 and self._looks[1][0] <= now - self._window:
            self._looks.popleft()
        # Where the source cannot tell ages, the time since there was no lag stands for it.
        if lag == 0:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        waiting = 0.0 if self._waiting_since is None else now - self._waiting_since
        seconds = age.total_seconds() if age is not None else waiting
        is_growing = lag > self._looks[0][1]
        if not self.is_lagging and lag > 0 and is_growing and seconds > self._limit:
            self.is_lagging = True
            return True
        if self.is_lagging and (lag == 0 or seconds < self._limit / 2):
            self.is_lagging = False
            return False
        return None
