"""Which failures of the database to retry, with growing delays between the attempts."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import psycopg

FIRST_DELAY_DEFAULT = timedelta(milliseconds=100)
LONGEST_DELAY_DEFAULT = timedelta(seconds=5)
# The connection is lost, or its server was demoted and rejects every write: the same call over a
# new connection may succeed.
CONNECTION_LOST = (
    psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction,
)  # fmt: skip


class Backoff:
    """Exponential delays with full jitter, so that many clients do not retry together."""

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
        """Count a failure and return the delay after it."""
        longest = min(self._longest, self._first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return longest * self._chance()

    def reset(self) -> None:
        """Reset the delay after a success."""
        self._failures = 0
