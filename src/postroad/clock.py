"""Time as a dependency, so that tests can replace the clock.

The time of the bus is `mbus.now()` in the database; this clock serves the Python
side only (intervals between polls, ages shown to people).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


class Clock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring intervals."""
        return time.monotonic()


SYSTEM_CLOCK = Clock()
