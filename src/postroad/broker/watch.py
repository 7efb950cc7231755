"""A watch: one consumer's look-out for messages of one queue.

```
due ──look: full──> due                     more is there, nobody needs to wake us
 │
 ├──look: short, not awaited──> due         next look says `await` first
 ├──look: short, awaited──> resting         publishers notify while we rest
 │
resting ──notice, or the slow recheck──> due
```

`await` before the last look is what makes it safe to rest: a publisher asks who waits after its
commit, so either it sees us or our look has seen its message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from postroad.broker.routes import Route

if TYPE_CHECKING:
    from postroad.broker.channel import Channel

__all__ = ["Watch"]


@dataclass(eq=False, slots=True)
class Watch:
    """What the transport knows about a consumer."""

    channel: Channel
    queue: str
    route: Route
    deliver: Callable[[dict[str, Any]], Any]
    is_due: bool = True
    is_short: bool = False
    is_awaited: bool = False
    is_stale: bool = field(default=False)

    def found(self, count: int, asked: int) -> None:
        """Draw the conclusion from a look."""
        self.is_short = count < asked
        if self.is_short and self.is_awaited:
            self.is_due = False
