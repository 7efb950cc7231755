"""One process of the exchange: its state diagram, its timeline, how to settle it by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    card,
    element,
    joined,
    link,
    moment,
    number,
    table,
)
from postroad.console.pages.graphs import live_graph
from postroad.console.parts.lists import empty
from postroad.console.parts.resources import action_buttons, detail_facts, open_row
from postroad.console.view import View
from postroad.exchange.resources import PROCESSES, RELEASE, RESOLVE

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
    t, connections = view.t, view.context.connections
    place, missing = [(t("nav.exchange"), address("exchange"))], t("exchange.process_gone")
    again = await open_row(view, connections, PROCESSES, view.path("process"), place, missing)
    if again is None:
        return

    async def head() -> Markup:
        one = await again()
        shown = detail_facts(view, PROCESSES, one, t("exchange.process"))
        return joined((shown, _timeline(view, one["history"])))

    async def diagram() -> str:
        one = await again()
        return _diagram(view, one["state"], _passed(one))

    async def files() -> Markup:
        return card(t("exchange.files"), _file_table(view, (await again())["files"]))

    outcomes = [
        (RESOLVE, {"outcome": "COMMITTED"}, t("exchange.it_committed")),
        (RESOLVE, {"outcome": "ABORTED"}, t("exchange.it_aborted")),
        (RELEASE, {}, ""),
    ]
    await action_buttons(view, connections, outcomes, again)
    await live_graph(view, diagram, t("exchange.diagram"))
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


def _word(view: View, state: str | None) -> str:
    return view.t.state(state.lower()) if state else NOTHING
