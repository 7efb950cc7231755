"""Rates of counters that only grow: change per second over some seconds."""

from __future__ import annotations

from collections import deque

from postroad.clock import SYSTEM_CLOCK, Clock

SPAN_SECONDS = 12.0


class Rates:
    """Stores the last values of each counter."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def of(self, name: str, value: float) -> float:
        """Record a value and return the recent growth of the counter per second."""
        now = self._clock.monotonic()
        seen = self._seen.setdefault(name, deque())
        if seen and value < seen[-1][1]:
            # The counter was reset.
            seen.clear()
        if not seen or now - seen[-1][0] > 0.5:
            seen.append((now, value))
        while len(seen) > 2 and now - seen[0][0] > SPAN_SECONDS:
            seen.popleft()
        passed = seen[-1][0] - seen[0][0]
        return (seen[-1][1] - seen[0][1]) / passed if passed > 0 else 0.0
