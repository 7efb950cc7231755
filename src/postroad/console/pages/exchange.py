"""The exchange: databases and their mailboxes, processes with those in doubt first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postroad.console.frame import page
from postroad.console.markup import (
    NOTHING,
    Markup,
    address,
    badge,
    card,
    element,
    joined,
    link,
    number,
)
from postroad.console.parts.lists import figures
from postroad.console.parts.resources import resource_table, show_resource
from postroad.console.view import View
from postroad.exchange.resources import CLIENTS, DATABASES, PROCESSES, RENEW

# As many columns as fit on a screen of common width.
DATABASE_COLUMNS = (
    "id", "queued", "leased", "deferred", "parked", "replies", "in_doubt", "process_state",
    "oldest_at",
)  # fmt: skip
PROCESS_COLUMNS = (
    "id", "database", "owner", "state", "files", "replies", "started_at", "ended_at", "error",
)  # fmt: skip
MAX_DOUBTS = 20
TO = ("exchange", "processes")


def process_link(view: View, process: str | None, state: str | None) -> Markup | str:
    """Link to a process with its state as the text, or its id without one."""
    if process is None:
        return NOTHING
    word = badge(view.t.state(state.lower()), state.lower()) if state else process[:13]
    return link(word, address(*TO, process))


@page("/exchange", "exchange", "nav.exchange")
async def _overview(view: View) -> None:
    t = view.t

    async def head() -> Markup:
        return _totals(view, await view.rows(DATABASES))

    async def doubts() -> Markup:
        unknown = {"state": "UNKNOWN"}
        found = await view.rows(PROCESSES, unknown, limit=MAX_DOUBTS)
        if not found:
            return Markup("")
        note = element("p", t("exchange.in_doubt_note"), class_="note")
        shown = resource_table(view, PROCESSES, found, to=TO, names=PROCESS_COLUMNS)
        return card(t("exchange.in_doubt"), note, shown, class_="urgent")

    await view.live(head)
    await show_resource(
        view,
        DATABASES,
        to=lambda row: address("exchange", database=row["id"]),
        names=DATABASE_COLUMNS,
        cells={
            "process_state": lambda row: process_link(view, row["process"], row["process_state"])
        },
        name="database_",
    )
    await view.live(doubts)
    await show_resource(view, PROCESSES, to=TO, names=PROCESS_COLUMNS)


@page("/exchange/clients", "exchange", "exchange.clients")
async def _clients(view: View) -> None:
    advice = element("code", "postroad exchange clients add")
    await show_resource(view, CLIENTS, advice=advice, row_actions=(RENEW,))


def _totals(view: View, found: Sequence[dict[str, Any]]) -> Markup:
    """Show sums over all databases, and those that were restored from a backup."""
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
    doubts = sum(one["in_doubt"] for one in found)
    totals = [
        (t.plural("exchange.databases_n", len(found)), number(len(found)), ""),
        (t("exchange.queued"), number(sum(one["queued"] for one in found)), ""),
        (t("exchange.leased"), number(sum(one["leased"] for one in found)), ""),
        (t("exchange.in_doubt"), number(doubts), "bad" if doubts else "good"),
    ]
    return joined((figures(totals), *restored))
