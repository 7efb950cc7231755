"""Messages of the exchange, and their files viewed in place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from postroad.console.markup import Markup, address, card, element, number, pretty
from postroad.console.pages.exchange_parts import exchange_tabs, process_link
from postroad.console.parts.resources import (
    action_buttons,
    detail_facts,
    open_row,
    show_resource,
)
from postroad.console.view import View
from postroad.exchange.files import Storage
from postroad.exchange.resources import MESSAGES, REQUEUE

MAX_FILE_BYTES = 100_000


async def messages_page(view: View) -> None:
    """List messages."""
    t = view.t
    ui.html(exchange_tabs(view, "messages"), sanitize=False)
    await show_resource(
        view,
        view.context.connections,
        MESSAGES,
        ["exchange", "messages"],
        to=lambda row: address("exchange", "messages", row["number"]),
        none=(t("exchange.no_message"), t("exchange.no_database_advice")),
        actions=(REQUEUE,),
    )


async def message_page(view: View) -> None:
    """Show one message with its file."""
    t, connections = view.t, view.context.connections
    place = [
        (t("nav.exchange"), address("exchange")),
        (t("exchange.messages"), address("exchange", "messages")),
    ]
    number_, missing = view.number("number"), t("exchange.message_gone")
    now = await open_row(view, connections, MESSAGES, number_, place, missing)
    if now is None:
        return

    async def shown() -> Markup:
        row = await now()
        is_cut = (row["size"] or 0) > MAX_FILE_BYTES
        return element(
            "div",
            detail_facts(
                view,
                MESSAGES,
                row,
                t("exchange.message"),
                {"process": lambda row: process_link(view, row["process"], None)},
            ),
            card(
                t("exchange.content"),
                element("p", t("bus.cut", shown=number(MAX_FILE_BYTES)), class_="note")
                if is_cut
                else None,
                element("pre", await _content(view, row), class_="data", tabindex="0"),
            ),
            class_="columns",
        )

    question = t("exchange.requeue_question")
    await action_buttons(view, connections, [(REQUEUE, {}, "")], now, question)
    await view.live(shown)


async def _content(view: View, one: Mapping[str, Any]) -> str:
    """Read the file where it lies; it may be moved meanwhile."""
    root = view.context.components.exchange_root
    if root is None or not one["file_name"]:
        return view.t("exchange.no_file")

    def read() -> str:
        content = Storage(root).read(
            one["database"], one["folder"], one["file_name"], MAX_FILE_BYTES
        )
        return pretty(content.decode(errors="replace"))

    try:
        return await asyncio.to_thread(read)
    except Exception:  # noqa: BLE001 - whatever is wrong with the file, the page is about its row
        return view.t("exchange.no_file")
