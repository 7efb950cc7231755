"""The intake: the pipeline as columns by status, and transfers that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from postroad.console.context import Context
from postroad.console.frame import add_page
from postroad.console.markup import (
    Column,
    Markup,
    address,
    badge,
    card,
    element,
    joined,
    link,
    number,
    table,
)
from postroad.console.pages.intake_files import file_page, files_page
from postroad.console.pages.intake_parts import bar, counts, intake_tabs
from postroad.console.pages.intake_servers import server_page, servers_page
from postroad.console.parts.lists import empty
from postroad.console.view import View
from postroad.intake import status

LANES = (
    ("discovered", ("discovered",)),
    ("downloading", ("downloading", "downloaded")),
    ("uploading_to_minio", ("uploading_to_minio", "uploaded_to_minio")),
    ("notifying", ("notifying",)),
    ("completed", ("completed",)),
    ("failed", ("failed",)),
)
LANE_ITEMS = 5


def add_intake_pages(context: Context) -> None:
    """Register the pages."""
    add_page(context, "/intake", "intake", "nav.intake", _pipeline)
    add_page(context, "/intake/servers", "intake", "intake.servers", servers_page)
    add_page(context, "/intake/servers/{server}", "intake", "intake.server_title", server_page)
    add_page(context, "/intake/files", "intake", "intake.files", files_page)
    add_page(context, "/intake/files/{file}", "intake", "intake.file_title", file_page)


async def _pipeline(view: View) -> None:
    t, connections = view.t, view.context.connections

    async def lanes() -> Markup:
        counted = await counts(view)
        shown = []
        for name, statuses in LANES:
            files: list[Mapping[str, Any]] = []
            for each in statuses:
                files += await _latest(view, each)
            shown.append(_lane(view, name, sum(counted[each] for each in statuses), files))
        return element("div", shown, class_="pipeline", tabindex="0", role="region",
                       aria_label=t("intake.pipeline"))  # fmt: skip

    async def transfers() -> Markup:
        found = await view.cached(
            "intake.transfers", lambda: connections.run_blocking(status.transfers), 1
        )
        return card(t("intake.transfers"), _transfer_table(view, found))

    async def stores() -> Markup:
        found = await view.cached(
            "intake.stores", lambda: connections.run_blocking(status.stores), 5
        )
        wrong = [one for one in found if one["failures"]]
        return joined(
            element("p", f"{one['store']}: {one['problem']}", class_="danger", role="alert")
            for one in wrong
        )

    ui.html(intake_tabs(view, "pipeline"), sanitize=False)
    await view.live(stores)
    await view.live(lanes)
    await view.live(transfers)


async def _latest(view: View, state: str) -> Sequence[Mapping[str, Any]]:
    connections = view.context.connections
    return await view.cached(
        ("intake.lane", state),
        lambda: connections.run_blocking(status.files, status=state, limit=LANE_ITEMS),
    )


def _lane(view: View, name: str, count: int, files: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    items = [
        element(
            "div",
            link(one["filename"], address("intake", "files", one["id"])),
            element("div", one["server"], " · ", t.size(one["filesize"]), class_="note"),
            element("div", one["error_message"], class_="note") if one["error_message"] else None,
            class_="item",
        )
        for one in files[:LANE_ITEMS]
    ]
    return element(
        "section",
        element("h3", t.state(name), element("span", number(count))),
        items,
        class_="lane",
    )


def _transfer_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("intake.file")),
            Column(t("intake.server")),
            Column(t("common.state")),
            Column(t("coordination.progress"), "wide"),
            Column(t("intake.size"), "num"),
            Column(t("bus.attempts"), "num"),
        ],
        [
            (
                link(one["filename"], address("intake", "files", one["id"])),
                one["server"],
                badge(t.state(one["status"]), "running"),
                bar(one["bytes_done"], one["filesize"]),
                t.size(one["filesize"]),
                number(one["attempts"]),
            )
            for one in found
        ],
        label=t("intake.transfers"),
        empty=empty(t("intake.no_transfer")),
    )
