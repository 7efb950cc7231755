"""Coordination: readers, their lag as a chart, events with those that wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from postroad.console.context import Context
from postroad.console.frame import add_page
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
from postroad.console.parts.listing import FilteredList, choice, say_gone, show_list
from postroad.console.parts.lists import empty, figures
from postroad.console.parts.sorting import ranked, sortable
from postroad.console.view import View
from postroad.coordination import status
from postroad.coordination.status import EventStatus, ReaderStatus

__all__ = ["add_coordination_pages"]

STATES = (
    "Created", "Saving", "Saved", "Activated", "Preparing", "Prepared", "Processing", "Processed",
    "Committing", "Committed", "Canceling", "Canceled",
)  # fmt: skip


def add_coordination_pages(context: Context) -> None:
    """Register the pages."""
    add_page(context, "/coordination", "coordination", "nav.coordination", _overview)
    add_page(
        context,
        "/coordination/events/{event}",
        "coordination",
        "coordination.event_title",
        event_page,
    )


async def _overview(view: View) -> None:
    t, connections = view.t, coordinator(view)
    if connections is None:
        say_gone(t("coordination.nothing"))
        return

    async def head() -> Markup:
        found = await view.cached(
            "coordination.summary", lambda: connections.run(status.summary), 5
        )
        events = sum(found.states.values())
        return joined(
            (
                figures(
                    [
                        (
                            t.plural("coordination.readers_n", found.readers),
                            number(found.readers),
                            "",
                        ),
                        (t.plural("coordination.events_n", events), number(events), ""),
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

    await view.live(head)
    line_chart(
        view,
        t("coordination.lag"),
        lambda: {name: list(points) for name, points in view.context.more.get("lag", {}).items()},
    )
    await show_list(
        view,
        FilteredList(
            ["coordination"],
            {"state": choice(t, t("common.state"), STATES, lambda one: t.state(one.lower()))},
            lambda given, before, limit: connections.run(
                status.events,
                state=given["state"],
                entity=given["search"],
                before=before,
                limit=limit,
            ),
            lambda page: _event_table(view, page),
            lambda last: last.position,
            hint=t("coordination.entity"),
        ),
    )


def _reader_table(view: View, found: Sequence[ReaderStatus]) -> Markup:
    t = view.t
    return sortable(
        view,
        "readers",
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
                _age(view, one.oldest_at),
                badge(number(one.parked), "parked") if one.parked else "0",
                moment(one.heard_at),
            )
            for one in found
        ],
        label=t("coordination.readers"),
        is_searched=False,
        empty=empty(t("coordination.no_reader"), t("coordination.no_reader_advice")),
    )


def _age(view: View, since: datetime | None) -> Markup | str:
    if since is None:
        return NOTHING
    age = datetime.now(UTC) - since
    return ranked(view.t.age(age), age.total_seconds())


def _event_table(view: View, found: Sequence[EventStatus]) -> Markup:
    t = view.t
    return table(
        [
            Column("ID", "num"),
            Column(t("coordination.type")),
            Column(t("coordination.mode")),
            Column(t("common.state")),
            Column(t("coordination.payloads"), "num"),
            Column(t("common.created"), "nowrap"),
            Column(t("coordination.took"), "num"),
            Column(t("coordination.reason"), "wide"),
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
