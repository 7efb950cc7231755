"""Coordination: events with their phases per reader, images side by side, lag, parked events."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from postroad.console.doors import Doors
from postroad.console.frame import add_page
from postroad.console.house import House
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    age,
    badge,
    card,
    element,
    facts,
    joined,
    link,
    moment,
    number,
    table,
)
from postroad.console.parts.charts import line_chart
from postroad.console.parts.dialogs import action_button, confirm
from postroad.console.parts.lists import crumbs, empty, figures, filter_form, pager
from postroad.console.view import View
from postroad.coordination import operations, status
from postroad.coordination.errors import EventNotFound
from postroad.coordination.status import EventDetail, EventStatus, PayloadStatus, ReaderStatus

__all__ = ["add_coordination_pages", "readers"]

PAGE_ROWS = 50
PAYLOADS_SHOWN = 50
LAG_POINTS = 300
STATES = (
    "Created", "Saving", "Saved", "Activated", "Preparing", "Prepared", "Processing", "Processed",
    "Committing", "Committed", "Canceling", "Canceled",
)  # fmt: skip
TONES = {"Committed": "good", "Canceled": "bad", "Canceling": "bad"}


def add_coordination_pages(house: House) -> None:
    """Register the pages."""
    add_page(house, "/coordination", "coordination", "nav.coordination", _overview)
    add_page(
        house, "/coordination/events/{event}", "coordination", "coordination.event_title", _event
    )


def _doors(view: View) -> Doors | None:
    return view.house.rooms.coordination.get("coordinator")


async def readers(view: View) -> Sequence[ReaderStatus]:
    """Return how far the readers are, shared by all pages; remembered for the chart."""
    doors = _doors(view)
    if doors is None:
        return ()
    found = await view.look("coordination.readers", lambda: doors.ask(status.readers))
    history: dict[str, deque[tuple[datetime, float]]] = view.house.more.setdefault("lag", {})
    now = datetime.now(UTC)
    for one in found:
        points = history.setdefault(one.reader, deque(maxlen=LAG_POINTS))
        if not points or (now - points[-1][0]).total_seconds() > 1:
            points.append((now, float(one.behind)))
    return found


async def _overview(view: View) -> None:
    t, doors = view.t, _doors(view)
    if doors is None:
        nothing = element("div", empty(t("coordination.nothing")), class_="empty")
        ui.html(card(None, nothing), sanitize=False)
        return
    state, entity, before = view.query("state"), view.query("search"), view.place("before")

    async def head() -> Markup:
        found = await view.look("coordination.summary", lambda: doors.ask(status.summary), 5)
        return joined(
            (
                figures(
                    [
                        (t("coordination.readers"), number(found.readers), ""),
                        (t("coordination.events"), number(sum(found.states.values())), ""),
                        (t("coordination.unfinished"), number(found.unfinished), ""),
                        (
                            t("coordination.parked"),
                            number(found.parked),
                            "bad" if found.parked else "good",
                        ),
                    ]
                ),
                element("div", style="height:16px"),
                _reader_table(view, await readers(view)),
            )
        )

    async def listed() -> Markup:
        found = await view.look(
            ("coordination.events", state, entity, before),
            lambda: doors.ask(
                status.events,
                state=state or None,
                entity=entity or None,
                before=before,
                limit=PAGE_ROWS + 1,
            ),
        )
        page = found[:PAGE_ROWS]
        kept = {"state": state, "search": entity}
        following = (
            address("coordination", **kept, before=page[-1].position)
            if len(found) > PAGE_ROWS
            else None
        )
        first = address("coordination", **kept) if before else None
        return joined((_event_table(view, page), pager(t, first, following)))

    await view.live(head)
    line_chart(
        view,
        t("coordination.lag"),
        lambda: {name: list(points) for name, points in view.house.more.get("lag", {}).items()},
    )
    ui.html(
        filter_form(
            t,
            address("coordination"),
            search=entity,
            hint=t("coordination.entity"),
            choices={
                "state": (
                    t("common.state"),
                    {"": t("common.all"), **{each: t.state(each.lower()) for each in STATES}},
                )
            },
            chosen={"state": state},
        ),
        sanitize=False,
    )
    await view.live(listed)


def _reader_table(view: View, found: Sequence[ReaderStatus]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("coordination.reader")),
            Column(t("coordination.is_voter")),
            Column(t("coordination.behind"), "num"),
            Column(t("bus.oldest"), "num"),
            Column(t("coordination.parked"), "num"),
            Column(t("coordination.heard"), "nowrap"),
        ],
        [
            (
                one.reader,
                t("common.yes") if one.is_voter else t("common.no"),
                number(one.behind),
                age(datetime.now(UTC) - one.oldest_at) if one.oldest_at else NOTHING,
                badge(number(one.parked), "parked") if one.parked else "0",
                moment(one.heard_at),
            )
            for one in found
        ],
        label=t("coordination.readers"),
        empty=empty(t("coordination.no_reader"), t("coordination.no_reader_advice")),
    )


def _event_table(view: View, found: Sequence[EventStatus]) -> Markup:
    t = view.t
    return table(
        [
            Column("№", "num"),
            Column(t("coordination.type")),
            Column(t("coordination.mode")),
            Column(t("common.state")),
            Column(t("coordination.payloads"), "num"),
            Column(t("common.created"), "nowrap"),
            Column(t("coordination.took"), "num"),
            Column(t("coordination.reason")),
        ],
        [
            (
                link(str(one.event_id), address("coordination", "events", one.event_id)),
                one.type,
                t.state(one.mode),
                _state(view, one.state),
                number(one.payloads),
                moment(one.created_at),
                age(one.finished_at - one.created_at) if one.finished_at else NOTHING,
                one.reason or NOTHING,
            )
            for one in found
        ],
        label=t("coordination.events"),
        empty=empty(t("coordination.no_event"), t("coordination.no_event_advice")),
    )


def _state(view: View, state: str) -> Markup:
    return element("span", view.t.state(state.lower()), class_=f"badge {TONES.get(state, 'wait')}")


async def _event(view: View) -> None:
    t, doors = view.t, _doors(view)
    text = view.path("event")
    event_id = int(text) if text.isdigit() else 0
    ui.html(crumbs((t("nav.coordination"), address("coordination")), (text, None)), sanitize=False)

    async def found() -> EventDetail | None:
        if doors is None:
            return None
        try:
            return await view.look(
                ("coordination.event", event_id),
                lambda: doors.ask(status.event, event_id),
                1,
            )
        except EventNotFound:
            return None

    first = await found()
    if first is None or doors is None:
        gone = element("div", empty(t("coordination.event_gone")), class_="empty")
        ui.html(card(None, gone), sanitize=False)
        return

    async def head() -> Markup:
        one = await found() or first
        return element("div", _event_facts(view, one), _event_readers(view, one), class_="columns")

    async def phases() -> Markup:
        return card(t("coordination.timeline"), _phases(view, await found() or first))

    async def retry() -> None:
        if await confirm(view, t("coordination.retry"), t("coordination.retry_question"),
                         is_danger=False):  # fmt: skip
            await view.act(
                "coordination.retry", text, lambda: doors.ask(operations.retry, event_id)
            )
            await view.refresh()

    async def cancel() -> None:
        if await confirm(view, t("coordination.cancel"), t("coordination.cancel_question")):
            reason = f"cancelled by {view.session.account}"
            await view.act(
                "coordination.cancel",
                text,
                lambda: doors.ask(operations.cancel, event_id, reason),
            )
            await view.refresh()

    if first.event.finished_at is None:
        with ui.element("div").classes("row"):
            action_button(view, t("coordination.retry"), retry, test="retry-event")
            action_button(
                view, t("coordination.cancel"), cancel, test="cancel-event", is_danger=True
            )
    await view.live(head)
    await view.live(phases)
    writer = view.house.rooms.coordination.get("writer")
    if writer is not None:
        payloads = await writer.ask(status.payloads, event_id, limit=PAYLOADS_SHOWN)
        ui.html(_images(view, payloads), sanitize=False)


def _event_facts(view: View, detail: EventDetail) -> Markup:
    t, one = view.t, detail.event
    return card(
        one.type,
        facts(
            [
                (t("common.state"), _state(view, one.state)),
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
                    else _state(view, one.state),
                    _progress(one.staged, one.payloads),
                    one.vote or NOTHING,
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
                _state(view, step.state),
                who,
                moment(step.at),
                f"+ {age(step.at - start)}",
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
