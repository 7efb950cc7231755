"""Coordination: readers, their lag as a chart, events with those that wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from nicegui import ui

from postroad.console.frame import add_page
from postroad.console.house import House
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    element,
    joined,
    link,
    moment,
    number,
    table,
)
from postroad.console.pages.coordination_event import event_page
from postroad.console.pages.coordination_parts import coordinator, readers, state_badge
from postroad.console.parts.charts import line_chart
from postroad.console.parts.listing import choice, listing, say_gone
from postroad.console.parts.lists import empty, figures, filter_form
from postroad.console.view import View
from postroad.coordination import status
from postroad.coordination.status import EventStatus, ReaderStatus

__all__ = ["add_coordination_pages"]

STATES = (
    "Created", "Saving", "Saved", "Activated", "Preparing", "Prepared", "Processing", "Processed",
    "Committing", "Committed", "Canceling", "Canceled",
)  # fmt: skip


def add_coordination_pages(house: House) -> None:
    """Register the pages."""
    add_page(house, "/coordination", "coordination", "nav.coordination", _overview)
    add_page(
        house,
        "/coordination/events/{event}",
        "coordination",
        "coordination.event_title",
        event_page,
    )


async def _overview(view: View) -> None:
    t, doors = view.t, coordinator(view)
    if doors is None:
        say_gone(t("coordination.nothing"))
        return
    state, entity = view.query("state"), view.query("search")

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
        return await listing(
            view,
            ["coordination"],
            {"state": state, "search": entity},
            lambda before, limit: doors.ask(
                status.events,
                state=state or None,
                entity=entity or None,
                before=before,
                limit=limit,
            ),
            lambda page: _event_table(view, page),
            lambda last: last.position,
        )

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
                "state": choice(t, t("common.state"), STATES, lambda one: t.state(one.lower()))
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
                t.age(datetime.now(UTC) - one.oldest_at) if one.oldest_at else NOTHING,
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
                state_badge(view, one.state),
                number(one.payloads),
                moment(one.created_at),
                t.age(one.finished_at - one.created_at) if one.finished_at else NOTHING,
                one.reason or NOTHING,
            )
            for one in found
        ],
        label=t("coordination.events"),
        empty=empty(t("coordination.no_event"), t("coordination.no_event_advice")),
    )
