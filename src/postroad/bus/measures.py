"""A worker's measurements for one consumer, as histograms that are sent to the database.

The bounds are those of `mbus._bounds`. Values are collected per batch, without any I/O.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from itertools import chain

from postroad.bus.message import LeasedMessage, Message, unread

SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
    1800, 3600, 21600, 86400,
)  # fmt: skip
COUNTS = (
    1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 2000, 5000, 10000,
)  # fmt: skip
BOUNDS = {"wait": SECONDS, "handled": SECONDS, "failed": SECONDS, "attempts": COUNTS,
          "batch": COUNTS}  # fmt: skip

# Arguments of `Bus.measure`.
Taken = tuple[str, str, list[str], list[int], list[float]]

_unread_headers = unread("headers")


def _attempts(messages: Sequence[Message]) -> list[int]:
    if isinstance(messages[0], LeasedMessage):
        return [message.attempt for message in messages if isinstance(message, LeasedMessage)]
    # Parsing would take longer than all measurements, and few messages have earlier attempts.
    given = list(map(_unread_headers, messages))
    if set(map(type, given)) == {str} and '"attempts"' not in "".join(given):
        return [1] * len(messages)
    return [
        1 if type(each) is str and '"attempts"' not in each else message.attempts + 1
        for message, each in zip(messages, given, strict=True)
    ]


class Measures:
    """The histograms of one consumer since they were last sent. Any thread may add to them."""

    def __init__(self, queue: str, consumer: str) -> None:
        self._names = (queue, consumer)
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._counts = {kind: [0] * (len(bounds) + 1) for kind, bounds in BOUNDS.items()}
        self._totals = dict.fromkeys(BOUNDS, 0.0)

    def add(self, kind: str, values: Sequence[float]) -> None:
        """Add values of a kind."""
        if not values:
            return
        bounds = BOUNDS[kind]
        least, greatest = bisect_left(bounds, min(values)), bisect_left(bounds, max(values))
        with self._lock:
            counts = self._counts[kind]
            self._totals[kind] += sum(values)
            if least == greatest:
                # Most batches: their messages are alike.
                counts[least] += len(values)
                return
            for value in values:
                counts[bisect_left(bounds, value)] += 1

    def handled(
        self, messages: Sequence[Message], taken_at: datetime, seconds: Sequence[float]
    ) -> None:
        """Add messages whose handlers have returned, and how long each took."""
        if not messages:
            return
        self.add("handled", seconds)
        waits = [
            (taken_at - (each.delayed_until or each.added)).total_seconds() for each in messages
        ]
        if min(waits) < 0:
            # The clock of the database has been set back.
            waits = [max(0.0, wait) for wait in waits]
        self.add("wait", waits)
        self.add("attempts", _attempts(messages))

    def take(self) -> Taken | None:
        """Return the arguments of `Bus.measure`, and begin again; None if nothing was measured."""
        with self._lock:
            counts, totals = self._counts, self._totals
            self._clear()
        kinds = [kind for kind, values in counts.items() if any(values)]
        if not kinds:
            return None
        flat = list(chain.from_iterable(counts[kind] for kind in kinds))
        return (*self._names, kinds, flat, [totals[kind] for kind in kinds])
