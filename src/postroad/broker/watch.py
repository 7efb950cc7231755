"""A watch: one consumer's look-out for messages of one queue.

```
due ──look: full──> due                     more is there, nobody needs to wake us
 │
 ├──look: short, not awaited──> due         next look says `await` first
 ├──look: short, awaited──> resting         publishers notify while we rest
 │
resting ──notice, or the slow recheck──> due
```

A publisher asks who waits just before its commit. One that asked before our `await` and committed
after our look is not seen; so a watch that has just begun to rest looks again after 20 ms, and a
few times more, at growing distance.
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

LOOK_AGAIN_SECONDS = (0.02, 0.1, 0.5, 2.0)
ROOM_SECONDS = 0.003


@dataclass(eq=False, slots=True)
class Watch:
    """What the transport knows about a consumer."""

    channel: Channel
    queue: str
    route: Route
    deliver: Callable[[Any], Any]
    is_due: bool = True
    is_short: bool = False
    is_awaited: bool = False
    is_stale: bool = False
    look_at: float = math.inf
    room_at: float = 0.0
    # Taken and not handed out yet: more than one only while a handler has raised.
    taken: deque[Taken] = field(default_factory=deque)
    _again: list[float] = field(default_factory=list)

    def awaits(self) -> None:
        """Take note that publishers know of us from now on."""
        self.is_awaited = True
        self._again = list(LOOK_AGAIN_SECONDS)

    def rests_not(self) -> None:
        """Take note that they no longer do."""
        self.is_awaited, self.is_due, self.look_at = False, True, math.inf

    def is_worth(self, room: int, now: float) -> bool:
        """Tell whether to look for so many; for a few of many, a moment is waited for more room."""
        if room * 2 >= self.channel.qos.prefetch_count or self.route.is_temporary:
            return True
        if not self.room_at:
            self.room_at = now + ROOM_SECONDS
        return self.room_at <= now

    def looks(self) -> None:
        """Begin a look: a notice that comes from now on may be about what it does not see."""
        self.is_due, self.room_at = False, 0.0

    def found(self, count: int, asked: int) -> None:
        """Draw the conclusion from a look."""
        self.is_short = count < asked
        self.look_at = math.inf
        if not (self.is_short and self.is_awaited):
            self.is_due = True
        elif self._again:
            self.look_at = time.monotonic() + self._again.pop(0)
