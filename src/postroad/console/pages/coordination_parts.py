"""Shared by the pages of coordination."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from postroad.console.connections import Connections
from postroad.console.view import View
from postroad.coordination.resources import EVENTS, READERS
from postroad.operate import Row

LAG_POINTS = 300


def coordinator(view: View) -> Connections | None:
    """Return connections to the Coordinator's database; None if it is not configured."""
    return view.context.components.coordination.get("coordinator")


async def readers(view: View) -> Sequence[Row]:
    """Return the positions of the readers, shared by all pages, and record them for the chart."""
    connections = coordinator(view)
    if connections is None:
        return ()
    page = await view.cached(
        "coordination.readers", lambda: connections.run(READERS.page, limit=1000)
    )
    history: dict[str, deque[tuple[datetime, float]]] = view.context.more.setdefault("lag", {})
    now = datetime.now(UTC)
    for one in page.rows:
        points = history.setdefault(one["reader"], deque(maxlen=LAG_POINTS))
        if not points or (now - points[-1][0]).total_seconds() > 1:
            points.append((now, float(one["behind"])))
    return page.rows


async def newest_position(view: View) -> int:
    """Return the position of the newest event, shared by all pages; 0 if there is none."""
    connections = coordinator(view)
    if connections is None:
        return 0
    page = await view.cached("coordination.newest", lambda: connections.run(EVENTS.page, limit=1))
    return page.rows[0]["position"] if page.rows else 0
