"""Graphs: messages that wait for each other, and sagas coloured by the state of their steps."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from nicegui import ui

from postroad.bus import AsyncSagas, SagaStep
from postroad.bus.resources import CANCEL, RETRY, SAGAS, WAITS
from postroad.bus.saga_picture import mermaid
from postroad.console.frame import page
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    link,
    moment,
    number,
    table,
)
from postroad.console.parts.resources import action_buttons, detail_facts, open_row, show_resource
from postroad.console.view import View
from postroad.operate import Row

# Maximum number of waiting messages that are drawn.
DRAWN = 60


async def live_graph(view: View, text: Callable[[], Awaitable[str]], label: str) -> None:
    """Draw a Mermaid graph, and draw it again when its text changes; nothing without text."""
    first = await text()
    if not first:
        return
    # On a light background, for which the colours are chosen.
    with ui.element("section").classes("card"):
        graph = ui.mermaid(first, config={"securityLevel": "strict", "theme": "neutral"})
    # On a phone a graph scrolls, which must be possible with a keyboard as well.
    graph.classes("graph").props(f'role="img" aria-label="{label}" tabindex="0"')

    async def again() -> None:
        if (content := await text()) != graph.content:
            graph.set_content(content)

    view.on_refresh(again)


def _waiting_graph(waits: Sequence[Row]) -> str:
    """Draw arrows from messages to the messages that wait for them."""
    names: dict[str, str] = {}

    def node(iid: str) -> str:
        return names.setdefault(iid, f"n{len(names)}")

    lines = ["flowchart LR"]
    # In a stable order, so that the same facts give the same text and the graph is not drawn again.
    for wait in sorted(waits, key=lambda one: (one["added"], one["id"])):
        target = node(wait["iid"])
        if wait["before_iid"] is not None:
            source, state = node(wait["before_iid"]), wait["before_state"]
            lines.append(f"  {source} {'-.->' if state == 'done' else '-->'} {target}")
            lines.append(f"  class {source} {state}")
        lines.append(f"  class {target} blocked")
    lines += [f'  {name}["{iid.replace("@", "#64;")}"]' for iid, name in names.items()]
    lines += [
        "  classDef blocked fill:#fff3bf,stroke:#b08800,color:#17212b",
        "  classDef pending fill:#d0ebff,stroke:#1864ab,color:#17212b",
        "  classDef reserved fill:#f1f3f5,stroke:#868e96,stroke-dasharray:4,color:#17212b",
        "  classDef done fill:#d3f9d8,stroke:#2b8a3e,color:#17212b",
    ]
    return "\n".join(lines)


@page("/bus/waiting", "bus", "bus.waiting")
async def _waiting(view: View) -> None:
    async def graph() -> str:
        found = await view.rows(WAITS, sort="added", is_descending=True, limit=DRAWN)
        return _waiting_graph(found) if found else ""

    await live_graph(view, graph, view.t("bus.waiting"))
    cells = {name: partial(_message_link, name) for name in ("iid", "before_iid")}
    await show_resource(view, WAITS, cells=cells, sort="added")


def _message_link(name: str, row: Row) -> Markup | str:
    iid = row[name]
    return link(iid, address("bus", "messages", iid), class_="mono") if iid else NOTHING


@page("/bus/sagas", "sagas", "saga.title")
async def _sagas(view: View) -> None:
    await show_resource(view, SAGAS, to=("bus", "sagas"))


def _step_message(one: SagaStep) -> tuple[Markup | str, Markup | str]:
    """Link to the queue and message of the step's current work: its compensation once posted."""
    is_undone = one.step_state in ("compensating", "compensated", "parked") and one.undo_iid
    queue, iid = (one.undo_queue, one.undo_iid) if is_undone else (one.do_queue, one.do_iid)
    return (
        link(queue, address("bus", "queues", queue)) if queue else NOTHING,
        link(iid, address("bus", "messages", iid), class_="mono") if iid else NOTHING,
    )


@page("/bus/sagas/{saga_id}", "sagas", "saga.one_title")
async def _saga(view: View) -> None:
    t, saga_id = view.t, view.number("saga_id")
    row = await open_row(view, SAGAS, saga_id)
    first = await row()

    async def steps() -> list[SagaStep]:
        sagas = AsyncSagas(view.context.bus)
        return await view.cached(("bus.saga", saga_id), lambda: sagas.status(saga_id), 1)

    async def head() -> Markup:
        return detail_facts(view, SAGAS, await row(), first["saga"])

    async def graph() -> str:
        # With its states in the user's language.
        text = mermaid(await steps()).replace("-. undo .->", f"-. {t('saga.compensation')} .->")
        return re.sub(r'<br/>(\w+)"', lambda word: f'<br/>{t.state(word[1])}"', text)

    async def listed() -> Markup:
        return table(
            [
                Column(t("saga.step")),
                Column(t("common.state")),
                Column(t("bus.queue")),
                Column(t("bus.iid"), "nowrap"),
                Column(t("bus.attempts"), "num"),
                Column(t("bus.error"), "wide"),
                Column(t("saga.done"), "nowrap"),
                Column(t("saga.undone"), "nowrap"),
            ],
            [
                (
                    one.step + (" ◆" if one.is_pivot else ""),
                    badge(t.state(one.step_state), one.step_state),
                    *_step_message(one),
                    number(one.attempts + one.undo_attempts),
                    one.undo_error or one.step_error or NOTHING,
                    moment(one.done_at),
                    moment(one.undone_at),
                )
                for one in await steps()
            ],
            label=t("saga.steps"),
            empty="",
        )

    await action_buttons(view, [CANCEL, RETRY], row)
    await view.live(head)
    await live_graph(view, graph, t("saga.graph"))
    await view.live(listed)
