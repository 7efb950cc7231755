"""The exchange: databases and their mailboxes, processes, messages and their files, clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO
from urllib.parse import quote

from nicegui import app
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from postroad.console.context import Context
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
    pretty,
)
from postroad.console.pages.graphs import live_graph
from postroad.console.parts.actions import action_buttons
from postroad.console.parts.lists import download_note, empty, figures
from postroad.console.parts.resources import (
    detail_facts,
    history_of,
    link_cell,
    list_page,
    open_row,
    part_table,
    resource_table,
    show_resource,
)
from postroad.console.view import View
from postroad.exchange import resources as exchange
from postroad.exchange.errors import FileUnsafe, MessageNotFound
from postroad.exchange.files import CHUNK_BYTES, Storage

# As many columns as fit on a screen of common width.
DATABASE_COLUMNS = (
    "id", "queued", "leased", "deferred", "parked", "replies", "in_doubt", "process_state",
    "oldest_at",
)  # fmt: skip
PROCESS_COLUMNS = (
    "id", "database", "owner", "state", "files", "replies", "started_at", "ended_at", "error",
)  # fmt: skip
TONES = {"unknown": "bad", "failed": "bad", "aborted": "wait", "cancelled": "wait"}
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
        return _totals(view, await view.rows(exchange.DATABASES))

    async def doubts() -> Markup:
        unknown = {"state": "UNKNOWN"}
        found = await view.rows(exchange.PROCESSES, unknown, limit=MAX_DOUBTS)
        if not found:
            return Markup("")
        note = element("p", t("exchange.in_doubt_note"), class_="note")
        shown = resource_table(view, exchange.PROCESSES, found, to=TO, names=PROCESS_COLUMNS)
        return card(t("exchange.in_doubt"), note, shown, class_="urgent")

    await view.live(head)
    await show_resource(
        view,
        exchange.DATABASES,
        to=lambda row: address("exchange", database=row["id"]),
        names=DATABASE_COLUMNS,
        cells={
            "process_state": lambda row: process_link(view, row["process"], row["process_state"])
        },
        name="database_",
    )
    await view.live(doubts)
    await show_resource(view, exchange.PROCESSES, to=TO, names=PROCESS_COLUMNS)
    await show_resource(view, exchange.SERVERS, title=t("exchange.servers"), name="server_")


_ADD_CLIENT = element("code", "postroad exchange clients add")
list_page(exchange.CLIENTS, advice=_ADD_CLIENT, row_actions=(exchange.RENEW,))
list_page(exchange.MESSAGES, actions=(exchange.REQUEUE,))


def _totals(view: View, found: Sequence[dict[str, Any]]) -> Markup:
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


_ARROWS = (
    ("STARTED", "READY_TO_COMMIT"), ("READY_TO_COMMIT", "CLEANUP"), ("CLEANUP", "DONE"),
    ("STARTED", "ABORTED"), ("STARTED", "CANCELLED"), ("READY_TO_COMMIT", "UNKNOWN"),
    ("UNKNOWN", "CLEANUP"), ("UNKNOWN", "ABORTED"), ("CLEANUP", "FAILED"), ("FAILED", "CLEANUP"),
)  # fmt: skip


@page("/exchange/processes/{process}", "exchange", "exchange.process_title")
async def _process(view: View) -> None:
    t = view.t
    again = await open_row(view, exchange.PROCESSES, view.path("process"))

    async def head() -> Markup:
        one = await again()
        shown = detail_facts(view, exchange.PROCESSES, one, t("exchange.process"))
        return joined((shown, history_of(view, one["history"], "state", TONES)))

    async def diagram() -> str:
        one = await again()
        return _diagram(view, one["state"], [step["state"] for step in one["history"]])

    async def files() -> Markup:
        found, none = (await again())["files"], empty(t("exchange.no_file"))
        cells = link_cell("name", "exchange", "messages", by="number")
        shown = part_table(view, exchange.PROCESSES.parts["files"], found, none, cells=cells)
        return card(t("exchange.files"), shown)

    committed = (exchange.RESOLVE, {"outcome": "COMMITTED"}, t("exchange.it_committed"))
    aborted = (exchange.RESOLVE, {"outcome": "ABORTED"}, t("exchange.it_aborted"))
    await action_buttons(view, [committed, aborted, exchange.RELEASE], again)
    await live_graph(view, diagram, t("exchange.diagram"))
    await view.live(head, class_="columns")
    await view.live(files)


def _diagram(view: View, state: str, passed: Sequence[str]) -> str:
    t = view.t
    lines = ["flowchart LR"]
    names = dict.fromkeys(name for arrow in _ARROWS for name in arrow)
    lines += [f'  {name}(["{t.state(name.lower())}"])' for name in names]
    lines += [f"  {source} --> {target}" for source, target in _ARROWS]
    for name in names:
        if name == state:
            tone = "bad" if name in ("UNKNOWN", "FAILED") else "now"
            lines.append(f"  class {name} {tone}")
        elif name in passed:
            lines.append(f"  class {name} passed")
    lines += [
        "  classDef now fill:#0b7285,stroke:#0b7285,color:#ffffff",
        "  classDef bad fill:#c92a2a,stroke:#c92a2a,color:#ffffff",
        "  classDef passed fill:#d3f9d8,stroke:#2b8a3e,color:#17212b",
    ]
    return "\n".join(lines)


MAX_FILE_BYTES = 100_000


@page("/exchange/messages/{number}", "exchange", "exchange.message_title")
async def _message(view: View) -> None:
    t = view.t
    now = await open_row(view, exchange.MESSAGES, view.number("number"))

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
        details = detail_facts(view, exchange.MESSAGES, row, t("exchange.message"), cells)
        text = element("pre", content or t("exchange.no_file"), class_="data", tabindex="0")
        file = card(t("exchange.content"), text, note=None if content is None else note)
        return element("div", details, file, class_="columns")

    question = t("exchange.requeue_question")
    await action_buttons(view, [exchange.REQUEUE], now, question)
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
            one = await context.connections.run(exchange.MESSAGES.one, number)
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
