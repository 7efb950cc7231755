"""The files of the intake: searched, seen one by one, tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    table,
)
from postroad.console.pages.intake_parts import bar, intake_tabs, servers
from postroad.console.parts.dialogs import (
    confirm,
    press_button,
)
from postroad.console.parts.listing import FilteredList, choice, say_gone, show_list
from postroad.console.parts.lists import crumbs, empty
from postroad.console.view import View
from postroad.intake import operations, status
from postroad.intake.errors import FileNotFound
from postroad.intake.status import FILE_STATUSES

ENDED = {"completed", "vanished", "superseded", "skipped"}


async def files_page(view: View) -> None:
    """List files."""
    t, connections = view.t, view.context.connections
    names = [one["name"] for one in await servers(view)]
    ui.html(intake_tabs(view, "files"), sanitize=False)
    await show_list(
        view,
        FilteredList(
            ["intake", "files"],
            {
                "status": choice(t, t("common.state"), FILE_STATUSES, t.state),
                "server": choice(t, t("intake.server"), names),
            },
            lambda given, before, limit: connections.run_blocking(
                status.files,
                status=given["status"],
                server=given["server"],
                name=given["search"],
                before=before,
                limit=limit,
            ),
            lambda page: _file_table(view, page),
            lambda last: last["id"],
            hint=t("intake.file"),
        ),
    )


def _file_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("intake.file")),
            Column(t("intake.server")),
            Column(t("common.state")),
            Column(t("intake.size"), "num"),
            Column(t("bus.attempts"), "num"),
            Column(t("intake.found"), "nowrap"),
            Column(t("intake.completed_at"), "nowrap"),
            Column(t("bus.error"), "wide"),
        ],
        [
            (
                link(one["filename"], address("intake", "files", one["id"])),
                one["server"],
                badge(t.state(one["status"]), one["status"]),
                t.size(one["filesize"]),
                number(one["attempts"]),
                moment(one["created_at"]),
                moment(one["completed_at"]),
                one["error_message"] or NOTHING,
            )
            for one in found
        ],
        label=t("intake.files"),
        empty=empty(t("intake.no_file"), t("intake.no_file_advice")),
    )


async def file_page(view: View) -> None:
    """Show one file with its history."""
    t, connections = view.t, view.context.connections
    file_id = view.number("file")

    async def found() -> Mapping[str, Any] | None:
        try:
            return await connections.run_blocking(status.file, file_id)
        except FileNotFound:
            return None

    first = await found()
    ui.html(
        crumbs(
            (t("nav.intake"), address("intake")),
            (t("intake.files"), address("intake", "files")),
            (first["filename"] if first else str(file_id), None),
        ),
        sanitize=False,
    )
    if first is None:
        say_gone(t("intake.file_gone"))
        return

    def act(verb: str, do: Callable[..., Any]) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            async def run() -> int:
                return len(await connections.run_blocking(do, [file_id]))

            await confirm(
                view,
                t(f"intake.{verb}"),
                t("intake.sure", file=first["filename"]),
                lambda: view.act(f"intake.{verb}", first["filename"], run),
                is_danger=verb == "skip",
            )

        return ask

    async def is_in(*statuses: str, wanted: bool = True) -> bool:
        return ((await found() or first)["status"] in statuses) is wanted

    async def shown() -> Markup:
        one = await found() or first
        history = await connections.run_blocking(status.history, file_id)
        steps = [
            element(
                "li",
                element("strong", t.state(step["status"])),
                " ",
                moment(step["at"]),
                element("div", step["note"], class_="note") if step["note"] else None,
                class_="bad" if step["status"] == "failed" else "good",
            )
            for step in history
        ]
        return element(
            "div",
            card(
                t("intake.file"),
                facts(
                    [
                        (t("common.state"), badge(t.state(one["status"]), one["status"])),
                        (t("intake.server"), one["server"]),
                        (t("intake.size"), t.size(one["filesize"])),
                        (t("coordination.progress"), bar(one["bytes_done"], one["filesize"])),
                        (t("intake.store"), one["store"] or NOTHING),
                        (
                            t("intake.object_key"),
                            element("span", one["object_key"] or NOTHING, class_="mono"),
                        ),
                        (
                            t("intake.hash"),
                            element("span", one["file_hash"] or NOTHING, class_="mono"),
                        ),
                        (t("bus.attempts"), number(one["attempts"])),
                        (t("bus.error"), one["error_message"] or NOTHING),
                        (t("intake.found"), moment(one["created_at"])),
                        (t("intake.completed_at"), moment(one["completed_at"])),
                    ]
                ),
            ),
            card(t("exchange.timeline"), element("ol", steps, class_="timeline")),
            class_="columns",
        )

    if view.may("operator"):
        with ui.element("div").classes("row"):
            retry = press_button(
                t("intake.retry"), act("retry", operations.retry), test="retry-file"
            )
            skip = press_button(
                t("intake.skip"), act("skip", operations.skip), "danger", "skip-file"
            )
            await view.offer(retry, lambda: is_in("failed"))
            await view.offer(skip, lambda: is_in(*ENDED, wanted=False))
            press_button(
                t("intake.reimport"), act("reimport", operations.reimport), test="reimport"
            )
    await view.live(shown)
