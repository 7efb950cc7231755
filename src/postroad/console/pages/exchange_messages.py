"""Messages of the exchange, with the contents of their files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, BinaryIO
from urllib.parse import quote

from nicegui import app
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from postroad.console.context import Context
from postroad.console.frame import page
from postroad.console.markup import Markup, address, card, element, pretty
from postroad.console.pages.exchange import process_link
from postroad.console.parts.lists import download_note
from postroad.console.parts.resources import action_buttons, detail_facts, open_row, show_resource
from postroad.console.view import View
from postroad.exchange.errors import FileUnsafe, MessageNotFound
from postroad.exchange.files import CHUNK_BYTES, Storage
from postroad.exchange.resources import MESSAGES, REQUEUE

MAX_FILE_BYTES = 100_000


@page("/exchange/messages", "exchange", "exchange.messages")
async def messages_page(view: View) -> None:
    """List messages."""
    await show_resource(view, MESSAGES, to=("exchange", "messages"), actions=(REQUEUE,))


@page("/exchange/messages/{number}", "exchange", "exchange.message_title")
async def message_page(view: View) -> None:
    """Show one message with its file."""
    t = view.t
    now = await open_row(view, MESSAGES, view.number("number"))

    async def shown() -> Markup:
        row = await now()
        is_cut = (row["size"] or 0) > MAX_FILE_BYTES
        content = await _content(view, row)
        note = download_note(
            t,
            row["size"],
            MAX_FILE_BYTES if is_cut else None,
            address("exchange", "data", row["number"]),
            row["file_name"] or "",
        )
        cells = {"process": lambda row: process_link(view, row["process"], None)}
        details = detail_facts(view, MESSAGES, row, t("exchange.message"), cells)
        text = element("pre", content or t("exchange.no_file"), class_="data", tabindex="0")
        file = card(t("exchange.content"), text, note=None if content is None else note)
        return element("div", details, file, class_="columns")

    question = t("exchange.requeue_question")
    await action_buttons(view, [REQUEUE], now, question)
    await view.live(shown)


async def _content(view: View, one: Mapping[str, Any]) -> str | None:
    """Read the beginning of the file in its folder; it may be moved in the meantime."""
    storage = view.context.components.exchange
    if not one["file_name"]:
        return None

    def read() -> str:
        with contextlib.closing(_open(storage, one)) as file:
            return pretty(file.read(MAX_FILE_BYTES).decode(errors="replace"))

    try:
        return await asyncio.to_thread(read)
    except Exception:  # noqa: BLE001 - whatever is wrong with the file, the page is about its row
        return None


def _open(storage: Storage, one: Mapping[str, Any]) -> BinaryIO:
    return storage.open_file(one["database"], one["folder"], one["object"] or one["file_name"])


def add_download(context: Context) -> None:
    """Register the URL that serves the whole file of a message."""

    async def data(number: int) -> Response:
        storage, file = context.components.exchange, None
        # The message may not exist, and its file may be moved in the meantime.
        with contextlib.suppress(MessageNotFound, OSError, FileUnsafe):
            one = await context.connections.run(MESSAGES.one, number)
            if one["file_name"]:
                file = await asyncio.to_thread(_open, storage, one)
        if file is None:
            return PlainTextResponse("there is no file", status_code=404)
        name = quote(one["file_name"], safe="")
        # It was sent by a partner: a browser must not show it as a page of the console.
        headers = {"content-disposition": f"attachment; filename*=utf-8''{name}"}
        chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
        return StreamingResponse(
            chunks, headers=headers, media_type="application/octet-stream",
            background=BackgroundTask(file.close),
        )  # fmt: skip

    app.add_api_route("/exchange/data/{number}", data)
