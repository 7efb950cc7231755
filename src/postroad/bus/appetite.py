"""How many messages a transaction takes: many when handlers are quick, one when slow. Pure.

What was taken in one transaction commits together, and other workers do not get it meanwhile. So a
batch is to last a fraction of a second, whatever the handler does.
"""

from __future__ import annotations

__all__ = ["Appetite"]

AMOUNT_FIRST = 10
BATCH_SECONDS = 0.1


class Appetite:
    """Grows to at most `most` while batches are done within a tenth of a second, and shrinks."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.amount = min(most, AMOUNT_FIRST)

    def fed(self, count: int, seconds: float) -> None:
        """Learn from the time that so many messages took."""
        if count == 0:
            return
        fitting = self._most if seconds <= 0 else int(BATCH_SECONDS * count / seconds)
        self.amount = max(1, min(self._most, fitting, 2 * self.amount))
