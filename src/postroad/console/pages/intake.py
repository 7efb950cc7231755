"""The intake: files by stage, and running transfers."""

from __future__ import annotations

from collections.abc import Sequence

from postroad.console.frame import page
from postroad.console.markup import Markup, address, card, element, joined, link, number
from postroad.console.parts.resources import resource_table
from postroad.console.view import View
from postroad.intake import status
from postroad.intake.resources import FILES, STORES, TRANSFERS
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

    async def transfers() -> Markup:
        found = await view.rows(TRANSFERS, age=1)
        shown = resource_table(
            view, TRANSFERS, found, to=("intake", "files"), cells={"bytes_done": bar}
        )
        return card(t("intake.transfers"), shown)

    async def stores() -> Markup:
        found = await view.rows(STORES, age=5)
        return joined(
            element("p", f"{one['store']}: {one['problem']}", class_="danger", role="alert")
            for one in found
            if one["failures"]
        )

    await view.live(stores)
    await view.live(stages)
    await view.live(transfers)


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
