"""Coordination: readers, their lag as a chart, and events with their phases and rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from nicegui import ui

from postroad.console.frame import page
from postroad.console.markup import NOTHING, Markup, badge, card, element, facts, number
from postroad.console.parts.actions import action_buttons, ask_action, title_of
from postroad.console.parts.charts import Line, line_chart
from postroad.console.parts.dialogs import row_button
from postroad.console.parts.lists import figures
from postroad.console.parts.resources import detail_facts, open_row, part_table, show_resource
from postroad.console.view import View
from postroad.coordination import status
from postroad.coordination.resources import CANCEL, EVENTS, READERS, RETRY, SKIP
from postroad.coordination.status import PayloadStatus
from postroad.operate import Row

LAG_POINTS = 300


async def readers(view: View) -> Sequence[Row]:
    """Return the positions of the readers, shared by all pages, and record them for the chart."""
    found = await view.rows(READERS)
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
        counted = [
            (t.plural(f"coordination.{name}_n", found[name]), number(found[name]), "")
            for name in ("readers", "events")
        ]
        unfinished = (t("coordination.unfinished"), number(found["unfinished"]), "")
        tone = "bad" if found["parked"] else "good"
        parked = (t("coordination.parked"), number(found["parked"]), tone)
        return figures([*counted, unfinished, parked])

    await view.live(head)
    await show_resource(view, READERS, name="reader_")

    async def lags() -> dict[str, Line]:
        return {name: list(points) for name, points in view.context.more.get("lag", {}).items()}

    await line_chart(view, t("coordination.lag"), lags)
    await show_resource(view, EVENTS, to=("coordination", "events"), actions=(RETRY,))


PAYLOADS_SHOWN = 50


@page("/coordination/events/{event}", "coordination", "coordination.event_title")
async def _event(view: View) -> None:
    t, event_id = view.t, view.number("event")
    now = await open_row(view, EVENTS, event_id)

    def skip_button(row: Row) -> Markup | str:
        if not row["is_parked"]:
            return ""
        return row_button(view, title_of(view, SKIP), SKIP.verb, row["reader"]) or ""

    async def skip(reader: str) -> None:
        question = t("coordination.skip_question", event=event_id, reader=reader)
        await ask_action(view, SKIP, await now(), {"reader": reader}, question=question)

    async def head() -> Markup:
        one = await now()
        none = t("empty.coordination.readers")
        found = [{**row, "state": "parked"} if row["is_parked"] else row for row in one["readers"]]
        columns, more = EVENTS.parts["readers"], {"": skip_button}
        readers = card(t("coordination.readers"), part_table(view, columns, found, none, more=more))
        details = detail_facts(view, EVENTS, one, one["type"])
        return element("div", details, readers, class_="columns")

    async def phases() -> Markup:
        steps = (await now())["timeline"]
        return card(t("coordination.timeline"), part_table(view, EVENTS.parts["timeline"], steps))

    view.on_row(SKIP.verb, skip)
    reason = {"reason": f"cancelled by {view.session.account}"}
    await action_buttons(view, [RETRY, (CANCEL, reason, "")], now)
    await view.live(head)
    await view.live(phases)
    writer = view.context.components.coordination["writer"]
    payloads = await writer.run(status.payloads, event_id, limit=PAYLOADS_SHOWN)
    ui.html(_images(view, payloads), sanitize=False)


def _images(view: View, payloads: Sequence[PayloadStatus]) -> Markup:
    t = view.t
    cards = []
    for one in payloads:
        before: Mapping[str, Any] = one.before or {}
        after: Mapping[str, Any] = {} if one.operation == "Delete" else one.content
        if one.operation == "Delete" and not before:
            before = one.content
        sides = (("before", before, after, "del"), ("after_image", after, before, "ins"))
        shown = [
            element("div", element("h3", t(f"coordination.{title}")), _image(image, other, tag))
            for title, image, other, tag in sides
        ]
        note = badge(t.state(one.operation.lower()))
        changes = element("div", shown, class_="diff")
        cards.append(card(f"{one.sequence}. {one.entity}", changes, note=note))
    return element("div", cards, class_="columns")


def _image(shown: Mapping[str, Any], other: Mapping[str, Any], tag: str) -> Markup:
    if not shown:
        return element("p", NOTHING, class_="note")
    texts = {name: NOTHING if value is None else str(value) for name, value in shown.items()}
    return facts(
        (name, element(tag, text) if other.get(name) != shown[name] else text)
        for name, text in texts.items()
    )
