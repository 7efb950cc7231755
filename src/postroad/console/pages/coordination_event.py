"""One event of coordination: its phases per reader, rows before and after, retry and cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from postroad.console.frame import page
from postroad.console.markup import NOTHING, Markup, badge, card, element, facts
from postroad.console.parts.dialogs import row_button
from postroad.console.parts.resources import (
    action_buttons,
    ask_action,
    detail_facts,
    open_row,
    part_table,
    title_of,
)
from postroad.console.view import View
from postroad.coordination import status
from postroad.coordination.resources import CANCEL, EVENTS, RETRY, SKIP
from postroad.coordination.status import PayloadStatus
from postroad.operate import Row

PAYLOADS_SHOWN = 50


@page("/coordination/events/{event}", "coordination", "coordination.event_title")
async def event_page(view: View) -> None:
    """Show one event."""
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
    """Show each changed row before and after the change."""
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
