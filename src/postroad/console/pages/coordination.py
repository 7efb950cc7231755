"""Coordination: readers, their lag as a chart, and events."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from postroad.console.frame import page
from postroad.console.markup import Markup, number
from postroad.console.parts.charts import Line, line_chart
from postroad.console.parts.lists import figures
from postroad.console.parts.resources import show_resource
from postroad.console.view import View
from postroad.coordination import status
from postroad.coordination.resources import EVENTS, READERS, RETRY
from postroad.operate import Row
from postroad.operate.resource import MAX_KEYS

LAG_POINTS = 300


async def readers(view: View) -> Sequence[Row]:
    """Return the positions of the readers, shared by all pages, and record them for the chart."""
    found = await view.rows(READERS, limit=MAX_KEYS)
    history: dict[str, deque[tuple[datetime, float]]] = view.context.more.setdefault("lag", {})
    now = datetime.now(UTC)
    for one in found:
        points = history.setdefault(one["reader"], deque(maxlen=LAG_POINTS))
        if not points or (now - points[-1][0]).total_seconds() > 1:
            points.append((now, float(one["behind"])))
    return found


async def newest_position(view: View) -> int:
    """Return the position of the newest event, shared by all pages; 0 if there is none."""
    found = await view.rows(EVENTS, limit=1)
    return found[0]["position"] if found else 0


@page("/coordination", "coordination", "nav.coordination")
async def _overview(view: View) -> None:
    t, read = view.t, partial(view.place_of(EVENTS).run, status.summary)

    async def head() -> Markup:
        found = await view.cached("coordination.summary", read, 5)
        await readers(view)
        return figures(
            [
                (t.plural("coordination.readers_n", found.readers), number(found.readers), ""),
                (t.plural("coordination.events_n", found.events), number(found.events), ""),
                (t("coordination.unfinished"), number(found.unfinished), ""),
                (t("coordination.parked"), number(found.parked), "bad" if found.parked else "good"),
            ]
        )

    await view.live(head)
    await show_resource(view, READERS, name="reader_")

    async def lags() -> dict[str, Line]:
        return {name: list(points) for name, points in view.context.more.get("lag", {}).items()}

    await line_chart(view, t("coordination.lag"), lags)
    await show_resource(view, EVENTS, to=("coordination", "events"), actions=(RETRY,))
