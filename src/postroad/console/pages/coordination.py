"""Coordination: readers, their lag as a chart, and events."""

from __future__ import annotations

from nicegui import ui

from postroad.console.frame import page
from postroad.console.markup import Markup, number
from postroad.console.pages.coordination_parts import coordinator, readers
from postroad.console.parts.charts import Line, line_chart
from postroad.console.parts.lists import figures, gone
from postroad.console.parts.resources import show_resource
from postroad.console.view import View
from postroad.coordination import status
from postroad.coordination.resources import EVENTS, READERS, RETRY


@page("/coordination", "coordination", "nav.coordination")
async def _overview(view: View) -> None:
    t, connections = view.t, coordinator(view)
    if connections is None:
        ui.html(gone(t("coordination.nothing")), sanitize=False)
        return

    async def head() -> Markup:
        found = await view.cached(
            "coordination.summary", lambda: connections.run(status.summary), 5
        )
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
    await show_resource(view, READERS, connections, none="coordination.no_reader", name="reader_")

    async def lags() -> dict[str, Line]:
        return {name: list(points) for name, points in view.context.more.get("lag", {}).items()}

    await line_chart(view, t("coordination.lag"), lags)
    to, none = ("coordination", "events"), "coordination.no_event"
    await show_resource(view, EVENTS, connections, to=to, none=none, actions=(RETRY,))
