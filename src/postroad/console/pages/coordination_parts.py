"""What the pages of coordination share."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from postroad.console.connections import Connections
from postroad.console.markup import (
    Markup,
    element,
)
from postroad.console.view import View
from postroad.coordination import status
from postroad.coordination.status import ReaderStatus

__all__ = ["coordinator", "newest_position", "readers", "state_badge"]

LAG_POINTS = 300
TONES = {"Committed": "good", "Canceled": "bad", "Canceling": "bad"}


def coordinator(view: View) -> Connections | None:
    """Return the way to the Coordinator's database; None where the room is not there."""
    return view.context.components.coordination.get("coordinator")


async def readers(view: View) -> Sequence[ReaderStatus]:
    """Return how far the readers are, shared by all pages; remembered for the chart."""
    connections = coordinator(view)
    if connections is None:
        return ()
    found = await view.cached("coordination.readers", lambda: connections.run(status.readers))
    history: dict[str, deque[tuple[datetime, float]]] = view.context.more.setdefault("lag", {})
    now = datetime.now(UTC)
    for one in found:
        points = history.setdefault(one.reader, deque(maxlen=LAG_POINTS))
        if not points or (now - points[-1][0]).total_seconds() > 1:
            points.append((now, float(one.behind)))
    return found


async def newest_position(view: View) -> int:
    """Return the place of the newest event, shared by all pages; 0 where there is none."""
    connections = coordinator(view)
    if connections is None:
        return 0
    found = await view.cached(
        "coordination.newest", lambda: connections.run(status.events, limit=1)
    )
    return found[0].position if found else 0


def state_badge(view: View, state: str) -> Markup:
    """Show the state of an event as a coloured word."""
    return element("span", view.t.state(state.lower()), class_=f"badge {TONES.get(state, 'wait')}")
