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
from postroad.console.parts.listing import choice, listing
from postroad.console.parts.lists import empty, figures, filter_form
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
    state, database = view.query("state"), view.query("database")

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

    async def listed() -> Markup:
        return await listing(
            view,
            ["exchange"],
            {"state": state, "database": database},
            lambda before, limit: doors.ask_blocking(
                status.processes,
                database=database or None,
                state=state or None,
                before=before,
                limit=limit,
            ),
            lambda page: _process_table(view, page),
            lambda last: last["number"],
        )

    ui.html(exchange_tabs(view, "processes"), sanitize=False)
    await view.live(head)
    await view.live(doubts)
    names = [one["id"] for one in await databases(view)]
    ui.html(
        filter_form(
            t,
            address("exchange"),
            choices={
                "database": choice(t, t("exchange.database"), names),
                "state": choice(t, t("common.state"), STATES, lambda one: t.state(one.lower())),
            },
            chosen={"database": database, "state": state},
        ),
        sanitize=False,
    )
    await view.live(listed)


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
    shown = table(
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
                t.age(datetime.now(one["oldest_at"].tzinfo) - one["oldest_at"])
                if one["oldest_at"]
                else NOTHING,
            )
            for one in found
        ],
        label=t("exchange.databases"),
        empty=empty(t("exchange.no_database"), t("exchange.no_database_advice")),
    )
    totals = figures(
        [
            (t("exchange.databases"), number(len(found)), ""),
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
            Column(t("bus.error")),
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
