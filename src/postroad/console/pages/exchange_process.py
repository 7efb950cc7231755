"""One process of the exchange: its state diagram, its timeline, how to settle it by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
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
    joined,
    link,
    moment,
    number,
    table,
)
from postroad.console.pages.graphs import live_graph
from postroad.console.parts.dialogs import (
    action_button,
    confirm,
)
from postroad.console.parts.listing import say_gone
from postroad.console.parts.lists import crumbs, empty
from postroad.console.view import View
from postroad.exchange import operations, status

__all__ = ["process_page"]

ENDED = {"DONE", "ABORTED", "CANCELLED"}
_ARROWS = (
    ("STARTED", "READY_TO_COMMIT"),
    ("READY_TO_COMMIT", "CLEANUP"),
    ("CLEANUP", "DONE"),
    ("STARTED", "ABORTED"),
    ("STARTED", "CANCELLED"),
    ("READY_TO_COMMIT", "UNKNOWN"),
    ("UNKNOWN", "CLEANUP"),
    ("UNKNOWN", "ABORTED"),
    ("CLEANUP", "FAILED"),
    ("FAILED", "CLEANUP"),
)


async def process_page(view: View) -> None:
    """Show one process."""
    t, doors = view.t, view.house.doors
    process = view.path("process")

    async def found() -> dict[str, Any] | None:
        return await view.look(
            ("exchange.process", process), lambda: doors.ask_blocking(status.process, process), 1
        )

    first = await found()
    ui.html(crumbs((t("nav.exchange"), address("exchange")), (process, None)), sanitize=False)
    if first is None:
        say_gone(t("exchange.process_gone"))
        return

    async def again() -> dict[str, Any]:
        return await found() or first

    async def head() -> Markup:
        one = await again()
        return joined((_facts(view, one), _timeline(view, one["history"])))

    async def files() -> Markup:
        return card(t("exchange.files"), _file_table(view, (await again())["files"]))

    async def is_open() -> bool:
        return (await again())["state"] not in ENDED

    await _end_buttons(view, process, is_open)
    with ui.element("section").classes("card"):
        graph = live_graph(_diagram(view, first["state"], _passed(first)), t("exchange.diagram"))

        async def redraw() -> None:
            one = await again()
            text = _diagram(view, one["state"], _passed(one))
            if text != graph.content:
                graph.set_content(text)

        view.on_refresh(redraw)
    await view.live(head, class_="columns")
    await view.live(files)


def _diagram(view: View, state: str, passed: Sequence[str]) -> str:
    """Draw the states with the way that this process took."""
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


def _passed(process: Mapping[str, Any]) -> list[str]:
    return [step["state"] for step in process["history"]]


def _facts(view: View, one: Mapping[str, Any]) -> Markup:
    t = view.t
    return card(
        t("exchange.process"),
        facts(
            [
                (t("exchange.database"), one["database"]),
                (t("exchange.owner"), one["owner"]),
                (t("common.state"), badge(t.state(one["state"].lower()), one["state"].lower())),
                (t("exchange.outcome"), _word(view, one["outcome"])),
                (t("exchange.started"), _at(one["started_at"])),
                (t("exchange.ready"), _at(one["ready_at"])),
                (t("exchange.ended"), _at(one["ended_at"])),
                (t("bus.error"), one["error"] or NOTHING),
            ]
        ),
    )


def _at(text: str | None) -> Markup | str:
    return moment(datetime.fromisoformat(text)) if text else NOTHING


def _timeline(view: View, history: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    tones = {"UNKNOWN": "bad", "FAILED": "bad", "ABORTED": "wait", "CANCELLED": "wait"}
    lines = [
        element(
            "li",
            element("strong", t.state(step["state"].lower())),
            " ",
            _at(step["at"]),
            element(
                "div",
                " · ".join(filter(None, (step["actor"], step["note"]))),
                class_="note",
            ),
            class_=tones.get(step["state"], "good"),
        )
        for step in history
    ]
    return card(t("exchange.timeline"), element("ol", lines, class_="timeline"))


def _file_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("exchange.file")),
            Column(t("exchange.sender")),
            Column(t("exchange.folder")),
            Column(t("exchange.size"), "num"),
            Column(t("exchange.result")),
        ],
        [
            (
                link(one["name"], address("exchange", "messages", one["number"]), class_="mono"),
                one["sender"],
                one["folder"],
                number(one["size"]),
                one["error"] or _word(view, one["result"]),
            )
            for one in found
        ],
        label=t("exchange.files"),
        empty=empty(t("exchange.no_file")),
    )


async def _end_buttons(view: View, process: str, is_open: Callable[[], Awaitable[bool]]) -> None:
    """Offer to end a process by hand while it is open: committed, aborted, or released."""
    t, doors = view.t, view.house.doors
    by = f"{view.session.account} (console)"

    def settle(outcome: str) -> Any:
        async def ask() -> None:
            async def act() -> str:
                answer = await doors.ask_blocking(operations.resolve, process, outcome, by=by)
                return str(answer["status"])

            await confirm(
                view,
                t("exchange.resolve"),
                t("exchange.resolve_question", process=process, outcome=outcome),
                lambda: view.act("exchange.resolve", process, act, detail={"outcome": outcome}),
            )

        return ask

    async def let_go() -> None:
        async def act() -> str:
            return str((await doors.ask_blocking(operations.release, process, by=by))["status"])

        await confirm(
            view,
            t("exchange.release"),
            t("exchange.release_question"),
            lambda: view.act("exchange.release", process, act),
        )

    with ui.element("div").classes("row"):
        for button in (
            action_button(
                view, t("exchange.it_committed"), settle("COMMITTED"), test="resolve-committed"
            ),
            action_button(
                view, t("exchange.it_aborted"), settle("ABORTED"), test="resolve-aborted"
            ),
            action_button(view, t("exchange.release"), let_go, test="release", is_danger=True),
        ):
            await view.offer(button, is_open)


def _word(view: View, state: str | None) -> str:
    return view.t.state(state.lower()) if state else NOTHING
