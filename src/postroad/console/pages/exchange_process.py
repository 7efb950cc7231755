"""One process of the exchange: its state diagram, its timeline, and its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from postroad.console.frame import page
from postroad.console.markup import NOTHING, Markup, address, card, joined, link, moment
from postroad.console.pages.graphs import live_graph
from postroad.console.parts.lists import empty, timeline
from postroad.console.parts.resources import action_buttons, detail_facts, open_row, part_table
from postroad.console.view import View
from postroad.exchange.resources import PROCESSES, RELEASE, RESOLVE
from postroad.operate import Row

_ARROWS = (
    ("STARTED", "READY_TO_COMMIT"), ("READY_TO_COMMIT", "CLEANUP"), ("CLEANUP", "DONE"),
    ("STARTED", "ABORTED"), ("STARTED", "CANCELLED"), ("READY_TO_COMMIT", "UNKNOWN"),
    ("UNKNOWN", "CLEANUP"), ("UNKNOWN", "ABORTED"), ("CLEANUP", "FAILED"), ("FAILED", "CLEANUP"),
)  # fmt: skip


@page("/exchange/processes/{process}", "exchange", "exchange.process_title")
async def process_page(view: View) -> None:
    """Show one process."""
    t = view.t
    again = await open_row(view, PROCESSES, view.path("process"))

    async def head() -> Markup:
        one = await again()
        shown = detail_facts(view, PROCESSES, one, t("exchange.process"))
        return joined((shown, _timeline(view, one["history"])))

    async def diagram() -> str:
        one = await again()
        return _diagram(view, one["state"], [step["state"] for step in one["history"]])

    async def files() -> Markup:
        found, none = (await again())["files"], empty(t("exchange.no_file"))
        cells = {"name": _file_link}
        shown = part_table(view, PROCESSES.parts["files"], found, none, cells=cells)
        return card(t("exchange.files"), shown)

    committed = (RESOLVE, {"outcome": "COMMITTED"}, t("exchange.it_committed"))
    aborted = (RESOLVE, {"outcome": "ABORTED"}, t("exchange.it_aborted"))
    await action_buttons(view, [committed, aborted, RELEASE], again)
    await live_graph(view, diagram, t("exchange.diagram"))
    await view.live(head, class_="columns")
    await view.live(files)


def _diagram(view: View, state: str, passed: Sequence[str]) -> str:
    """Draw the states with the path that this process took."""
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


def _timeline(view: View, history: Sequence[Mapping[str, Any]]) -> Markup:
    tones = {"UNKNOWN": "bad", "FAILED": "bad", "ABORTED": "wait", "CANCELLED": "wait"}
    steps = [
        (
            view.t.state(step["state"].lower()),
            moment(datetime.fromisoformat(step["at"])) if step["at"] else NOTHING,
            " · ".join(filter(None, (step["actor"], step["note"]))),
            tones.get(step["state"], "good"),
        )
        for step in history
    ]
    return timeline(view.t, steps)


def _file_link(row: Row) -> Markup:
    return link(row["name"], address("exchange", "messages", row["number"]), class_="mono")
