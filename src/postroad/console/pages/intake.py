"""The intake: files by stage, running transfers, and each file with its history."""

from __future__ import annotations

from collections.abc import Sequence

from postroad.console.frame import page
from postroad.console.markup import Markup, address, element, joined, link, number
from postroad.console.pages.messages import copies_card
from postroad.console.parts.actions import action_buttons
from postroad.console.parts.resources import (
    detail_facts,
    history_of,
    list_page,
    message_cell,
    open_row,
    show_resource,
)
from postroad.console.view import View
from postroad.intake import status
from postroad.intake.resources import FILES, REIMPORT, RETRY, SKIP, STORES, TRANSFERS
from postroad.operate import Row

STAGES = (
    ("discovered", ("discovered",)),
    ("downloading", ("downloading", "downloaded")),
    ("uploading_to_minio", ("uploading_to_minio", "uploaded_to_minio")),
    ("notifying", ("notifying",)),
    ("completed", ("completed",)),
    ("failed", ("failed",)),
)
STAGE_ITEMS = 5


def bar(row: Row) -> Markup:
    """Draw the progress of a transfer."""
    total = row["filesize"]
    percent = min(100, 100 * (row["bytes_done"] or 0) // total) if total else 0
    inner = element("span", style=f"width:{percent}%")
    return element("div", inner, class_="bar", role="progressbar", aria_valuenow=percent,
                   aria_valuemin=0, aria_valuemax=100, aria_label=f"{percent} %")  # fmt: skip


@page("/intake", "intake", "nav.intake")
async def _pipeline(view: View) -> None:
    t = view.t

    async def stages() -> Markup:
        counted = await view.load("intake.counts", status.counts)
        shown = []
        for name, statuses in STAGES:
            files: list[Row] = []
            for each in statuses:
                files += await view.rows(FILES, {"status": each}, limit=STAGE_ITEMS)
            shown.append(_stage(view, name, sum(counted[each] for each in statuses), files))
        return element("div", shown, class_="pipeline", tabindex="0", role="region",
                       aria_label=t("intake.pipeline"))  # fmt: skip

    async def stores() -> Markup:
        found = await view.rows(STORES, age=5)
        return joined(
            element("p", f"{one['store']}: {one['problem']}", class_="danger", role="alert")
            for one in found
            if one["failures"]
        )

    await view.live(stores)
    await view.live(stages)
    to, title = ("intake", "files"), t("intake.transfers")
    await show_resource(view, TRANSFERS, to=to, cells={"bytes_done": bar}, title=title)


def _stage(view: View, name: str, count: int, files: Sequence[Row]) -> Markup:
    t = view.t
    items = [
        element(
            "div",
            link(one["filename"], address("intake", "files", one["id"])),
            element("div", one["server"], " · ", t.size(one["filesize"]), class_="note"),
            element("div", one["error_message"], class_="note") if one["error_message"] else None,
            class_="item",
        )
        for one in files[:STAGE_ITEMS]
    ]
    return element(
        "section",
        element("h3", t.state(name, "status"), element("span", number(count))),
        items,
        class_="stage",
    )


FILE_ACTIONS = (RETRY, SKIP, REIMPORT)


list_page(FILES, actions=FILE_ACTIONS)


@page("/intake/files/{file}", "intake", "intake.file_title")
async def _file(view: View) -> None:
    t = view.t
    now = await open_row(view, FILES, view.number("file"))

    async def shown() -> Markup:
        row = await now()
        history = history_of(view, row["history"], "status", {"failed": "bad"})
        cells = {"bytes_done": bar, **message_cell("notice")}
        details = detail_facts(view, FILES, row, t("intake.file"), cells)
        shown = element("div", details, history, class_="columns")
        notice = await copies_card(view, row["notice"]) if row["notice"] else None
        return joined((shown, notice))

    await action_buttons(view, FILE_ACTIONS, now)
    await view.live(shown)
