"""Consistent hashing: which shard a key belongs to. Pure.

Each shard has points on a circle, as many as its weight says; a key belongs to the shard of the
next point. A shard that comes takes keys from all others in proportion, one that goes gives its
keys to all others, and every other key stays where it was.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Mapping

__all__ = ["HashRing"]

POINTS_PER_WEIGHT = 160


class HashRing:
    """Shards on a circle."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        points = sorted(
            (_place(f"{name}/{number}"), name)
            for name, weight in weights.items()
            for number in range(POINTS_PER_WEIGHT * weight)
        )
        self._places = [place for place, _ in points]
        self._names = [name for _, name in points]

    def __bool__(self) -> bool:
        return bool(self._names)

    def find(self, key: str) -> str:
        """Tell the shard of a key; raise LookupError when there is none."""
        if not self._names:
            raise LookupError("the ring has no shards")
        index = bisect.bisect_right(self._places, _place(key)) % len(self._names)
        return self._names[index]


def _place(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
