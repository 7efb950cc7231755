"""What to do when the database goes away: the same answer everywhere. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import psycopg

from postroad.bus.errors import BusError
from postroad.postgres.errors import DatabaseUnavailable

__all__ = ["SURVIVABLE", "TRANSIENT", "Backoff"]

# A lost connection, a server that starts or stops, a pool that could not connect in time.
TRANSIENT = (psycopg.OperationalError, psycopg.InterfaceError, DatabaseUnavailable, OSError)

# What a long-running loop logs and tries again instead of ending: a queue may be created again.
SURVIVABLE = (psycopg.Error, BusError, DatabaseUnavailable, OSError)

FIRST_DELAY_DEFAULT = timedelta(milliseconds=100)
LONGEST_DELAY_DEFAULT = timedelta(seconds=5)


class Backoff:
    """Exponential delays with full jitter, so that many clients do not come back together."""

    def __init__(
        self,
        first: timedelta = FIRST_DELAY_DEFAULT,
        longest: timedelta = LONGEST_DELAY_DEFAULT,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first = first.total_seconds()
        self._longest = longest.total_seconds()
        self._chance = chance
        self._failures = 0

    def next_seconds(self) -> float:
        """Count a failure and tell how long to wait after it."""
        most = min(self._longest, self._first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return most * self._chance()

    def reset(self) -> None:
        """Forget the failures: it works again."""
        self._failures = 0
