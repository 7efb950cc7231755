"""The state machine of leases, drawn in the package's docstring. No I/O; any thread may call it."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from datetime import timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
L = TypeVar("L")

EXTENSIONS_PER_TTL = 3


def lost_tokens(held: Iterable[tuple[str, int]], lost: Iterable[str]) -> set[int]:
    """Return the tokens of lost leases, given the iids that the bus has returned.

    A message whose lease was lost may have been leased again by the same holder; then the older
    lease, the one with the smaller token, is the lost one.
    """
    missing = Counter(lost)
    tokens = set()
    for iid, token in sorted(held, key=lambda each: each[1]):
        if missing[iid]:
            missing[iid] -= 1
            tokens.add(token)
    return tokens


class Keeper(Generic[K, L]):
    """The leases of one holder, by key: their deadlines, and which call is due.

    `ack_delay` is the longest time that a finished lease waits to be acked with others; `ack_batch`
    of them are acked without waiting.
    """

    def __init__(
        self,
        ttl: timedelta,
        *,
        ack_delay: timedelta = timedelta(0),
        ack_batch: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ttl = ttl
        self.clock = clock
        self._ttl_seconds = ttl.total_seconds()
        self._ack_delay_seconds = ack_delay.total_seconds()
        self._ack_batch = ack_batch
        self._lock = threading.Lock()
        self._held: dict[K, tuple[L, float]] = {}
        self._finished: dict[K, L] = {}
        self._acking: dict[K, L] = {}
        self._ack_at = math.inf
        self._extend_at = clock() + self._ttl_seconds / EXTENSIONS_PER_TTL

    def claim(self, leases: Iterable[tuple[K, L]], since: float) -> bool:
        """Keep new leases; `since` is the time before they were requested.

        Returns whether these are the first ones, whose deadline is not watched yet.
        """
        deadline = since + self._ttl_seconds
        with self._lock:
            is_first = not self._held
            for key, lease in leases:
                self._held[key] = lease, deadline
            return is_first

    def holds(self, key: K) -> bool:
        """Check whether a lease is held: claimed, and neither finished nor released nor lost."""
        held = self._held.get(key)
        return held is not None and self.clock() < held[1]

    def keys(self) -> list[K]:
        """Return the keys of the held leases."""
        with self._lock:
            return list(self._held)

    def finish(self, key: K) -> bool:
        """Record that the work is done; a lease that is not held is ignored.

        Returns whether the time of the next ack has changed.
        """
        with self._lock:
            held = self._held.pop(key, None)
            if held is None:
                return False
            self._finished[key] = held[0]
            if len(self._finished) >= self._ack_batch:
                self._ack_at = min(self._ack_at, self.clock())
                return len(self._finished) == self._ack_batch
            if self._ack_at == math.inf:
                self._ack_at = self.clock() + self._ack_delay_seconds
                return True
            return False

    def release(self, key: K) -> L | None:
        """Stop extending a lease; return it, None if it is not held."""
        with self._lock:
            held = self._held.pop(key, None)
        return None if held is None else held[0]

    def flush(self) -> None:
        """Ack from now on without delay."""
        with self._lock:
            self._ack_delay_seconds = 0.0
            if self._finished:
                self._ack_at = self.clock()

    @property
    def has_finished(self) -> bool:
        """Whether finished leases wait for their ack."""
        return bool(self._finished or self._acking)

    def rest_seconds(self) -> float:
        """Return the time until the next call is due."""
        return max(0.0, min(self._ack_at, self._extend_at) - self.clock())

    def to_extend(self) -> dict[K, L]:
        """Return the leases to extend if an extension is due; pass the answer to `extended`."""
        with self._lock:
            if self.clock() < self._extend_at:
                return {}
            self._extend_at = self.clock() + self._ttl_seconds / EXTENSIONS_PER_TTL
            held = {key: lease for key, (lease, _) in self._held.items()}
            # They must not expire before the ack has arrived.
            return held | self._finished | self._acking

    def extended(self, asked: Iterable[K], since: float, lost: Iterable[K]) -> list[L]:
        """Move the deadlines after a call made at `since`; return the held leases that are lost."""
        deadline = since + self._ttl_seconds
        with self._lock:
            gone = [self._held.pop(key)[0] for key in lost if key in self._held]
            for key in asked:
                if key in self._held:
                    self._held[key] = self._held[key][0], deadline
        return gone

    def to_ack(self, *, is_due: bool = False) -> dict[K, L]:
        """Return the finished leases if acking is due or requested.

        Pass the answer to `acked` or `ack_failed`.
        """
        with self._lock:
            if not self._finished or not (is_due or self.clock() >= self._ack_at):
                return {}
            leases, self._finished = self._finished, {}
            self._acking.update(leases)
            self._ack_at = math.inf
        return leases

    def acked(self, keys: Iterable[K]) -> None:
        """Forget acked leases."""
        with self._lock:
            for key in keys:
                self._acking.pop(key, None)

    def ack_failed(self, keys: Iterable[K], retry_seconds: float = 0.0) -> None:
        """Ack these leases again after a delay."""
        with self._lock:
            failed = {key: self._acking.pop(key) for key in keys if key in self._acking}
            self._finished = failed | self._finished
            if self._finished:
                self._ack_at = self.clock() + retry_seconds

    def seconds_to_deadline(self) -> float | None:
        """Return the time until the first deadline, None if nothing is held."""
        with self._lock:
            deadlines = [deadline for _, deadline in self._held.values()]
        return max(0.0, min(deadlines) - self.clock()) if deadlines else None

    def expire(self) -> list[L]:
        """Drop the held leases whose deadline has passed, and return them.

        A finished lease is still acked: its token is refused if another holder has the message.
        """
        now = self.clock()
        with self._lock:
            late = [key for key, (_, deadline) in self._held.items() if deadline <= now]
            return [self._held.pop(key)[0] for key in late]
