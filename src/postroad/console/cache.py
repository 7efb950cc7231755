"""Values that all open pages of a process share: each is read once for all pages.

```
empty ──first access──> loading ──> fresh ──too old──> loading (other callers get the last value)
```

An expensive value is read less often: it uses at most `MAX_SHARE` of a core, however
many pages are open and however large the database is. Its cost is the shorter of the last
two durations, so that a single slow read, because of a lock or a cold cache, has no effect. No
value is older than `MAX_AGE_SECONDS`, and pages show how old their values are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast

from postroad.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T")

AGE_DEFAULT_SECONDS = 2.0
MAX_AGE_SECONDS = 15.0
MAX_SHARE = 0.1
FAILED_AGE_SECONDS = 1.0
MAX_KEPT = 500


@dataclass
class _Entry:
    value: Any = None
    taken_at: float | None = None
    loaded_at: datetime | None = None
    failure: Exception | None = None
    failed_at: float = 0.0
    # The durations of the last two loads.
    costs_seconds: tuple[float, ...] = ()
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Cache:
    """Values by key, each loaded once for all concurrent callers."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._entries: dict[object, _Entry] = {}

    async def get(
        self,
        key: object,
        load: Callable[[], Awaitable[T]],
        age_seconds: float = AGE_DEFAULT_SECONDS,
        *,
        is_strict: bool = False,
    ) -> T:
        """Return the value of a key, at most `age_seconds` old, or older if loading is slow.

        With `is_strict` the value is never older, however slow the database is; for permissions.
        Raises the errors of `load`; an error is cached for a second.
        """
        entry = self._entries.setdefault(key, _Entry())
        if not self._is_fresh(entry, age_seconds, is_strict=is_strict):
            if not is_strict and entry.lock.locked() and entry.taken_at is not None:
                return cast("T", entry.value)
            async with entry.lock:
                if not self._is_fresh(entry, age_seconds, is_strict=is_strict):
                    await self._take(entry, load)
        if len(self._entries) > MAX_KEPT:
            by_age = sorted(self._entries, key=lambda key: self._entries[key].taken_at or 0.0)
            for oldest in by_age[: MAX_KEPT // 2]:
                if not self._entries[oldest].lock.locked():
                    del self._entries[oldest]
        return cast("T", entry.value)

    async def _take(self, entry: _Entry, load: Callable[[], Awaitable[Any]]) -> None:
        begun = self._clock.monotonic()
        if entry.failure is not None and begun - entry.failed_at < FAILED_AGE_SECONDS:
            # Cached briefly, so that callers do not retry in a tight loop.
            raise entry.failure
        try:
            entry.value = await load()
        except Exception as failure:
            entry.failure, entry.failed_at = failure, self._clock.monotonic()
            raise
        entry.failure = None
        entry.taken_at, entry.loaded_at = self._clock.monotonic(), self._clock.now()
        entry.costs_seconds = (*entry.costs_seconds[-1:], entry.taken_at - begun)

    def loaded_at(self, key: object) -> datetime | None:
        """Return when the value of a key was loaded; None if it is not cached."""
        entry = self._entries.get(key)
        return entry.loaded_at if entry is not None else None

    def expire(self) -> None:
        """Load every value again on its next access, because something was changed."""
        for entry in self._entries.values():
            entry.taken_at = None

    def forget(self, key: object) -> None:
        """Load one value again on its next access."""
        self._entries.pop(key, None)

    def _is_fresh(self, entry: _Entry, age_seconds: float, *, is_strict: bool) -> bool:
        if entry.taken_at is None:
            return False
        age = self._clock.monotonic() - entry.taken_at
        if is_strict:
            return age < age_seconds
        # One duration is not enough; the second one is measured at the next access.
        cost = min(entry.costs_seconds) if len(entry.costs_seconds) > 1 else 0.0
        return age < max(age_seconds, min(cost / MAX_SHARE, MAX_AGE_SECONDS))
