"""Messages of the exchange, and their files viewed in place."""

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
    link,
    moment,
    number,
    pretty,
    table,
)
from postroad.console.pages.exchange_parts import databases, exchange_tabs
from postroad.console.parts.dialogs import (
    action_button,
    confirm,
)
from postroad.console.parts.listing import FilteredList, choice, say_gone, show_list
from postroad.console.parts.lists import crumbs, empty
from postroad.console.view import View
from postroad.exchange import operations, status
from postroad.exchange.files import Storage

__all__ = ["message_page", "messages_page"]

MAX_FILE_BYTES = 100_000
MESSAGE_STATES = ("queued", "leased", "deferred", "parked", "waiting", "done")


async def messages_page(view: View) -> None:
    """List messages."""
    t, doors = view.t, view.house.doors
    names = [one["id"] for one in await databases(view)]
    ui.html(exchange_tabs(view, "messages"), sanitize=False)
    await show_list(
        view,
        FilteredList(
            ["exchange", "messages"],
            {
                "database": choice(t, t("exchange.database"), names),
                "state": choice(t, t("common.state"), MESSAGE_STATES, t.state),
            },
            lambda given, before, limit: doors.ask_blocking(
                status.messages,
                database=given["database"],
                state=given["state"],
                search=given["search"],
                before=before,
                limit=limit,
            ),
            lambda page: _message_table(view, page),
            lambda last: last["number"],
            hint=t("exchange.search_hint"),
        ),
    )


def _message_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("exchange.message"), "nowrap"),
            Column(t("exchange.database")),
            Column(t("exchange.sender")),
            Column(t("exchange.recipient")),
            Column(t("common.state")),
            Column(t("exchange.size"), "num"),
            Column(t("common.created"), "nowrap"),
            Column(t("bus.error"), "wide"),
        ],
        [
            (
                link(
                    str(one["id"])[:24],
                    address("exchange", "messages", one["number"]),
                    class_="mono",
                ),
                one["database"],
                one["sender"],
                one["recipient"] or NOTHING,
                badge(t.state(one["state"]), one["state"]),
                number(one["size"]),
                moment(one["created_at"]),
                one["error"] or NOTHING,
            )
            for one in found
        ],
        label=t("exchange.messages"),
        empty=empty(t("exchange.no_message"), t("exchange.no_database_advice")),
    )


async def message_page(view: View) -> None:
    """Show one message with its file."""
    t, doors = view.t, view.house.doors
    place = view.number("number")

    async def found() -> dict[str, Any] | None:
        rows = await doors.ask_blocking(status.messages, before=place + 1, limit=1)
        return rows[0] if rows and rows[0]["number"] == place else None

    one = await found()
    ui.html(
        crumbs(
            (t("nav.exchange"), address("exchange")),
            (t("exchange.messages"), address("exchange", "messages")),
            (str(one["id"]) if one else str(place), None),
        ),
        sanitize=False,
    )
    if one is None:
        say_gone(t("exchange.message_gone"))
        return

    async def requeue() -> None:
        async def act() -> str:
            answer = await doors.ask_blocking(
                operations.requeue, one["id"], sender=one["sender"], database=one["database"]
            )
            return str(answer["status"])

        await confirm(
            view,
            t("exchange.requeue"),
            t("exchange.requeue_question"),
            lambda: view.act("exchange.requeue", str(one["id"]), act),
        )

    async def shown() -> Markup:
        now = await found() or one
        return element(
            "div",
            card(
                t("exchange.message"),
                facts(
                    [
                        (t("common.state"), badge(t.state(now["state"]), now["state"])),
                        (t("exchange.database"), now["database"]),
                        (t("exchange.sender"), now["sender"]),
                        (t("exchange.recipient"), now["recipient"] or NOTHING),
                        (t("exchange.folder"), now["folder"]),
                        (t("exchange.file"), element("span", now["file_name"], class_="mono")),
                        (t("exchange.size"), number(now["size"])),
                        (t("exchange.process"), _process(now["process"])),
                        (t("common.created"), moment(now["created_at"])),
                        (t("bus.error"), now["error"] or NOTHING),
                    ]
                ),
            ),
            card(
                t("exchange.content"),
                element("p", t("bus.cut", shown=number(MAX_FILE_BYTES)), class_="note")
                if (now["size"] or 0) > MAX_FILE_BYTES
                else None,
                element("pre", await _content(view, now), class_="data", tabindex="0"),
            ),
            class_="columns",
        )

    async def can_be_requeued() -> bool:
        return (await found() or one)["state"] in ("parked", "deferred")

    with ui.element("div").classes("row"):
        button = action_button(view, t("exchange.requeue"), requeue, test="requeue")
        await view.offer(button, can_be_requeued)
    await view.live(shown)


def _process(process: str | None) -> Markup | str:
    if process is None:
        return NOTHING
    return link(process[:13], address("exchange", "processes", process), class_="mono")


async def _content(view: View, one: Mapping[str, Any]) -> str:
    """Read the file where it lies; it may move while we look."""
    root = view.house.rooms.exchange_root
    if root is None or not one["file_name"]:
        return view.t("exchange.no_file")

    def read(_: object) -> str:
        content = Storage(root).read(
            one["database"], one["folder"], one["file_name"], MAX_FILE_BYTES
        )
        return pretty(content.decode(errors="replace"))

    try:
        return await view.house.doors.ask_blocking(read)
    except Exception:  # noqa: BLE001 - whatever is wrong with the file, the page is about its row
        return view.t("exchange.no_file")
