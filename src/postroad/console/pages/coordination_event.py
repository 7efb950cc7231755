"""One event of coordination: its phases per reader, rows before and after, retry and cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    card,
    element,
    facts,
    moment,
    number,
    table,
)
from postroad.console.pages.coordination_parts import coordinator, state_badge
from postroad.console.parts.dialogs import action_button, confirm
from postroad.console.parts.listing import say_gone
from postroad.console.parts.lists import crumbs, empty
from postroad.console.view import View
from postroad.coordination import operations, status
from postroad.coordination.errors import EventNotFound
from postroad.coordination.status import EventDetail, PayloadStatus

__all__ = ["event_page"]

PAYLOADS_SHOWN = 50


async def event_page(view: View) -> None:
    """Show one event."""
    t, connections = view.t, coordinator(view)
    event_id = view.number("event")
    ui.html(
        crumbs((t("nav.coordination"), address("coordination")), (str(event_id), None)),
        sanitize=False,
    )

    async def found() -> EventDetail | None:
        if connections is None:
            return None
        try:
            return await view.cached(
                ("coordination.event", event_id),
                lambda: connections.run(status.event, event_id),
                1,
            )
        except EventNotFound:
            return None

    first = await found()
    if first is None or connections is None:
        say_gone(t("coordination.event_gone"))
        return

    async def head() -> Markup:
        one = await found() or first
        return element("div", _event_facts(view, one), _event_readers(view, one), class_="columns")

    async def phases() -> Markup:
        return card(t("coordination.timeline"), _phases(view, await found() or first))

    async def retry() -> None:
        await confirm(
            view,
            t("coordination.retry"),
            t("coordination.retry_question"),
            lambda: view.act(
                "coordination.retry",
                str(event_id),
                lambda: connections.run(operations.retry, event_id),
            ),
            is_danger=False,
        )

    async def cancel() -> None:
        reason = f"cancelled by {view.session.account}"
        await confirm(
            view,
            t("coordination.cancel"),
            t("coordination.cancel_question"),
            lambda: view.act(
                "coordination.cancel",
                str(event_id),
                lambda: connections.run(operations.cancel, event_id, reason),
            ),
        )

    async def is_open() -> bool:
        return (await found() or first).event.finished_at is None

    with ui.element("div").classes("row"):
        for button in (
            action_button(view, t("coordination.retry"), retry, test="retry-event"),
            action_button(
                view, t("coordination.cancel"), cancel, test="cancel-event", is_danger=True
            ),
        ):
            await view.offer(button, is_open)
    await view.live(head)
    await view.live(phases)
    writer = view.context.components.coordination.get("writer")
    if writer is not None:
        payloads = await writer.run(status.payloads, event_id, limit=PAYLOADS_SHOWN)
        ui.html(_images(view, payloads), sanitize=False)


def _event_facts(view: View, detail: EventDetail) -> Markup:
    t, one = view.t, detail.event
    return card(
        one.type,
        facts(
            [
                (t("common.state"), state_badge(view, one.state)),
                (t("coordination.mode"), t.state(one.mode)),
                (t("coordination.payloads"), number(one.payloads)),
                (t("common.created"), moment(one.created_at)),
                (t("saga.deadline"), moment(one.deadline)),
                (t("saga.finished"), moment(one.finished_at)),
                (t("coordination.reason"), one.reason or NOTHING),
            ]
        ),
    )


def _event_readers(view: View, detail: EventDetail) -> Markup:
    t = view.t
    return card(
        t("coordination.readers"),
        table(
            [
                Column(t("coordination.reader")),
                Column(t("common.state")),
                Column(t("coordination.progress")),
                Column(t("coordination.vote")),
                Column(t("bus.attempts"), "num"),
                Column(t("coordination.reason")),
            ],
            [
                (
                    one.reader,
                    badge(t("coordination.parked"), "parked")
                    if one.is_parked
                    else state_badge(view, one.state),
                    _progress(one.staged, one.payloads),
                    t.state(one.vote) if one.vote else NOTHING,
                    number(one.attempts),
                    one.reason or NOTHING,
                )
                for one in detail.readers
            ],
            label=t("coordination.readers"),
            empty=empty(t("coordination.no_reader")),
        ),
    )


def _progress(done: int, total: int) -> Markup:
    percent = 100 * done // total if total else 100
    bar = element("span", style=f"width:{percent}%")
    return element("div", bar, class_="bar", role="img", aria_label=f"{done} / {total}")


def _phases(view: View, detail: EventDetail) -> Markup:
    """Draw when each side passed each phase, as bars on one scale of time."""
    t = view.t
    steps = sorted(detail.timeline, key=lambda step: step.at)
    if not steps:
        return element("p", NOTHING, class_="note")
    start = steps[0].at
    rows = []
    for step in steps:
        who = step.reader or t.state(step.by)
        rows.append(
            (
                state_badge(view, step.state),
                who,
                moment(step.at),
                f"+ {t.age(step.at - start)}",
                step.note or NOTHING,
            )
        )
    return table(
        [
            Column(t("common.state")),
            Column(t("coordination.by")),
            Column(t("audit.at"), "nowrap"),
            Column(t("coordination.after"), "num"),
            Column(t("coordination.reason")),
        ],
        rows,
        label=t("coordination.timeline"),
        empty="",
    )


def _images(view: View, payloads: Sequence[PayloadStatus]) -> Markup:
    """Show each changed row as it was and as it became."""
    t = view.t
    cards = []
    for one in payloads:
        before: Mapping[str, Any] = one.before or {}
        after: Mapping[str, Any] = {} if one.operation == "Delete" else one.content
        if one.operation == "Delete" and not before:
            before = one.content
        cards.append(
            card(
                f"{one.sequence}. {one.entity}",
                element(
                    "div",
                    element(
                        "div", element("h3", t("coordination.before")), _image(before, after, "del")
                    ),
                    element(
                        "div",
                        element("h3", t("coordination.after_image")),
                        _image(after, before, "ins"),
                    ),
                    class_="diff",
                ),
                note=badge(t.state(one.operation.lower())),
            )
        )
    return element("div", cards, class_="columns")


def _image(shown: Mapping[str, Any], other: Mapping[str, Any], tag: str) -> Markup:
    if not shown:
        return element("p", NOTHING, class_="note")
    return facts(
        (
            name,
            element(tag, str(value)) if other.get(name) != value else str(value),
        )
        for name, value in shown.items()
    )
