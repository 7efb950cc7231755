"""Time as a dependency: what waits or compares asks a clock, and tests hand in their own.

The truth about time inside the bus is `mbus.now()` in the database; this clock serves the Python
side only (intervals between polls, ages shown to people).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What code may ask about time."""

    def now(self) -> datetime:
        """Return the present moment, zoned."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring intervals."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some fixed point."""
        return time.monotonic()


SYSTEM_CLOCK: Clock = SystemClock()
