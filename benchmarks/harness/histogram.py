"""Counts of durations in bounded memory, to three significant digits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["Histogram"]

# 1,024 buckets for each doubling: less than 0.1 % wide.
_DIGITS = 10


class Histogram:
    """Durations in milliseconds, kept as counts of microseconds in buckets that grow with them."""

    def __init__(self, counts: Iterable[tuple[int, int]] = ()) -> None:
        self._counts: Counter[int] = Counter(dict(counts))

    def __len__(self) -> int:
        return sum(self._counts.values())

    def add(self, milliseconds: float) -> None:
        """Count one duration; a negative one, of a clock set back, counts as none."""
        microseconds = max(0, int(milliseconds * 1000))
        shift = max(0, microseconds.bit_length() - _DIGITS - 1)
        self._counts[(shift << _DIGITS + 1) | (microseconds >> shift)] += 1

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self._counts.update(other._counts)

    def items(self) -> list[tuple[int, int]]:
        """Return the buckets and their counts, in a form that JSON carries."""
        return sorted(self._counts.items())

    def percentiles(self, *parts: float) -> list[float]:
        """Return for each part the duration that it does not exceed; 0 when nothing was counted."""
        total = len(self)
        if not total:
            return [0.0 for _ in parts]
        ordered = sorted((_milliseconds(bucket), count) for bucket, count in self._counts.items())
        found = []
        for part in parts:
            rank, seen = max(1, -int(-part * total // 1)), 0
            for value, count in ordered:
                seen += count
                if seen >= rank:
                    found.append(value)
                    break
        return found


def _milliseconds(bucket: int) -> float:
    shift, value = bucket >> _DIGITS + 1, bucket & (1 << _DIGITS + 1) - 1
    return (value << shift) / 1000
