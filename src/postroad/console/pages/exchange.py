"""The exchange: databases and their mailboxes, processes with those in doubt first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nicegui import ui

from postroad.console.frame import add_page
from postroad.console.house import House
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    card,
    element,
    joined,
    link,
    moment,
    number,
    table,
)
from postroad.console.pages.exchange_messages import message_page, messages_page
from postroad.console.pages.exchange_parts import databases, exchange_tabs, process_link
from postroad.console.pages.exchange_process import process_page
from postroad.console.parts.listing import FilteredList, choice, show_list
from postroad.console.parts.lists import empty, figures
from postroad.console.parts.sorting import ranked, sortable
from postroad.console.view import View
from postroad.exchange import status

__all__ = ["add_exchange_pages"]

STATES = ("open", "UNKNOWN", "STARTED", "READY_TO_COMMIT", "CLEANUP", "DONE", "ABORTED", "FAILED")


def add_exchange_pages(house: House) -> None:
    """Register the pages."""
    add_page(house, "/exchange", "exchange", "nav.exchange", _overview)
    add_page(
        house, "/exchange/processes/{process}", "exchange", "exchange.process_title", process_page
    )
    add_page(house, "/exchange/messages", "exchange", "exchange.messages", messages_page)
    add_page(
        house, "/exchange/messages/{number}", "exchange", "exchange.message_title", message_page
    )


async def _overview(view: View) -> None:
    t, doors = view.t, view.house.doors

    async def head() -> Markup:
        return _databases(view, await databases(view))

    async def doubts() -> Markup:
        found = await view.look(
            "exchange.doubts",
            lambda: doors.ask_blocking(status.processes, state="UNKNOWN", limit=20),
        )
        if not found:
            return Markup("")
        note = element("p", t("exchange.in_doubt_note"), class_="note")
        return card(t("exchange.in_doubt"), note, _process_table(view, found), class_="urgent")

    ui.html(exchange_tabs(view, "processes"), sanitize=False)
    await view.live(head)
    await view.live(doubts)
    names = [one["id"] for one in await databases(view)]
    await show_list(
        view,
        FilteredList(
            ["exchange"],
            {
                "database": choice(t, t("exchange.database"), names),
                "state": choice(t, t("common.state"), STATES, lambda one: t.state(one.lower())),
            },
            lambda given, before, limit: doors.ask_blocking(
                status.processes,
                database=given["database"],
                state=given["state"],
                before=before,
                limit=limit,
            ),
            lambda page: _process_table(view, page),
            lambda last: last["number"],
        ),
    )


def _databases(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    restored = [
        element(
            "p",
            t("exchange.restored", database=one["id"]),
            " ",
            element("code", f"postroad exchange replay {one['id']}"),
            class_="warning",
            role="alert",
        )
        for one in found
        if one["restored_at"]
    ]
    shown = sortable(
        view,
        "databases",
        [
            Column(t("exchange.database")),
            Column(t("exchange.queued"), "num"),
            Column(t("exchange.leased"), "num"),
            Column(t("exchange.deferred"), "num"),
            Column(t("exchange.parked"), "num"),
            Column(t("exchange.replies"), "num"),
            Column(t("exchange.in_doubt"), "num"),
            Column(t("exchange.process")),
            Column(t("bus.oldest"), "num"),
        ],
        [
            (
                link(one["id"], address("exchange", database=one["id"])),
                number(one["queued"]),
                number(one["leased"]),
                number(one["deferred"]),
                _alarming(number(one["parked"]), one["parked"]),
                number(one["replies"]),
                _alarming(number(one["in_doubt"]), one["in_doubt"]),
                process_link(view, one["process"], one["process_state"]),
                _age(view, one["oldest_at"]),
            )
            for one in found
        ],
        label=t("exchange.databases"),
        is_searched=False,
        empty=empty(t("exchange.no_database"), t("exchange.no_database_advice")),
    )
    totals = figures(
        [
            (t.plural("exchange.databases_n", len(found)), number(len(found)), ""),
            (t("exchange.queued"), number(sum(one["queued"] for one in found)), ""),
            (t("exchange.leased"), number(sum(one["leased"] for one in found)), ""),
            (
                t("exchange.in_doubt"),
                number(doubts := sum(one["in_doubt"] for one in found)),
                "bad" if doubts else "good",
            ),
        ]
    )
    return joined((totals, element("div", style="height:16px"), *restored, shown))


def _age(view: View, since: datetime | None) -> Markup | str:
    if since is None:
        return NOTHING
    age = datetime.now(since.tzinfo) - since
    return ranked(view.t.age(age), age.total_seconds())


def _alarming(text: str, count: int) -> Markup | str:
    return badge(text, "bad") if count else text


def _process_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("exchange.process"), "nowrap"),
            Column(t("exchange.database")),
            Column(t("exchange.owner")),
            Column(t("common.state")),
            Column(t("exchange.files"), "num"),
            Column(t("exchange.replies"), "num"),
            Column(t("exchange.started"), "nowrap"),
            Column(t("exchange.ended"), "nowrap"),
            Column(t("bus.error"), "wide"),
        ],
        [
            (
                link(
                    str(one["id"])[:13], address("exchange", "processes", one["id"]), class_="mono"
                ),
                one["database"],
                one["owner"],
                badge(t.state(one["state"].lower()), one["state"].lower()),
                number(one["files"]),
                number(one["replies"]),
                moment(one["started_at"]),
                moment(one["ended_at"]),
                one["error"] or NOTHING,
            )
            for one in found
        ],
        label=t("exchange.processes"),
        empty=empty(t("exchange.no_process"), t("exchange.no_process_advice")),
    )
