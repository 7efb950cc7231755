"""The files of the intake: list, history, actions."""

from __future__ import annotations

from postroad.console.frame import page
from postroad.console.markup import NOTHING, Markup, address, element, joined, link, moment
from postroad.console.pages.intake import bar
from postroad.console.pages.messages import copies_card
from postroad.console.parts.lists import timeline
from postroad.console.parts.resources import action_buttons, detail_facts, open_row, show_resource
from postroad.console.view import View
from postroad.intake.resources import FILES, REIMPORT, RETRY, SKIP
from postroad.operate import Row

FILE_ACTIONS = (RETRY, SKIP, REIMPORT)


@page("/intake/files", "intake", "intake.files")
async def files_page(view: View) -> None:
    """List files."""
    await show_resource(view, FILES, to=("intake", "files"), actions=FILE_ACTIONS)


@page("/intake/files/{file}", "intake", "intake.file_title")
async def file_page(view: View) -> None:
    """Show one file with its history."""
    t = view.t
    now = await open_row(view, FILES, view.number("file"))

    async def shown() -> Markup:
        row = await now()
        steps = [
            (
                t.state(step["status"], "status"),
                moment(step["at"]),
                step["note"],
                "bad" if step["status"] == "failed" else "good",
            )
            for step in row["history"]
        ]
        cells = {"bytes_done": bar, "notice": _notice}
        details = detail_facts(view, FILES, row, t("intake.file"), cells)
        shown = element("div", details, timeline(t, steps), class_="columns")
        notice = await copies_card(view, row["notice"]) if row["notice"] else None
        return joined((shown, notice))

    await action_buttons(view, FILE_ACTIONS, now)
    await view.live(shown)


def _notice(row: Row) -> Markup | str:
    if row["notice"] is None:
        return NOTHING
    return link(row["notice"], address("bus", "messages", row["notice"]), class_="mono")
