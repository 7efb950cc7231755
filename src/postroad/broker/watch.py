"""A watch: when a consumer polls its queue.

```
due ──poll: full──> due                     there may be more messages
 │
 ├──poll: short, not awaited──> due         the next poll registers the wait first
 ├──poll: short, awaited──> waiting         publishers notify
 │
waiting ──notice, or the slow recheck──> due
```

A publisher checks for waiting consumers just before its commit. If it checks before the wait is
registered and commits after the poll, there is no notice. So a new wait polls again after 20 ms,
and a few times more at growing intervals.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from postroad.broker.routes import Route

if TYPE_CHECKING:
    from postroad.broker.channel import Channel

Taken: TypeAlias = tuple[str, str, int, bool]  # iid, data, token, is redelivered

REPOLL_SECONDS = (0.02, 0.1, 0.5, 2.0)
SMALL_BATCH_SECONDS = 0.003


@dataclass(eq=False, slots=True)
class Watch:
    """The state of one consumer."""

    channel: Channel
    queue: str
    route: Route
    deliver: Callable[[Any], Any]
    is_due: bool = True
    is_short: bool = False
    is_awaited: bool = False
    is_stale: bool = False
    poll_at: float = math.inf
    defer_until: float = 0.0
    # Messages taken but not delivered; more than one only after a handler has raised.
    taken: deque[Taken] = field(default_factory=deque)
    _again: list[float] = field(default_factory=list)

    def start_waiting(self) -> None:
        """Record that publishers notify from now on."""
        self.is_awaited = True
        self._again = list(REPOLL_SECONDS)

    def stop_waiting(self) -> None:
        """Record that publishers no longer notify."""
        self.is_awaited, self.is_due, self.poll_at = False, True, math.inf

    def is_worthwhile(self, slots: int, now: float) -> bool:
        """Return whether to poll with these free slots; if they are few, more may be free soon."""
        if slots * 2 >= self.channel.qos.prefetch_count or self.route.is_temporary:
            return True
        if not self.defer_until:
            self.defer_until = now + SMALL_BATCH_SECONDS
        return self.defer_until <= now

    def begin_poll(self) -> None:
        """Begin a poll: a later notice may be about messages that it does not see."""
        self.is_due, self.defer_until = False, 0.0

    def end_poll(self, count: int, limit: int) -> None:
        """Decide by the number of messages when to poll next."""
        self.is_short = count < limit
        self.poll_at = math.inf
        if not (self.is_short and self.is_awaited):
            self.is_due = True
        elif self._again:
            self.poll_at = time.monotonic() + self._again.pop(0)
