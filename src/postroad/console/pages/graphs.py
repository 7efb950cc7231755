"""Graphs: messages that wait for each other, and sagas coloured by the state of their steps."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict

from nicegui import ui

from postroad.bus import AsyncSagas, SagaStep
from postroad.bus.resources import WAITS
from postroad.bus.saga_picture import mermaid
from postroad.bus.saga_resources import CANCEL, RETRY, SAGAS
from postroad.console.frame import page
from postroad.console.markup import Markup
from postroad.console.parts.actions import action_buttons
from postroad.console.parts.resources import (
    detail_facts,
    link_cell,
    message_cell,
    open_row,
    part_table,
    show_resource,
)
from postroad.console.view import View
from postroad.operate import Column, Row

# Maximum number of waiting messages that are drawn.
DRAWN = 60
STEPS = (
    Column("step", "Step", "Шаг"),
    Column("step_state", "State", "Состояние", "state"),
    Column("queue", "Queue", "Очередь"),
    Column("iid", "Message", "Сообщение", "code"),
    Column("attempts", "Attempts", "Попытки", "number"),
    Column("error", "Error", "Ошибка"),
    Column("done_at", "Done", "Выполнен", "moment"),
    Column("undone_at", "Compensated", "Компенсирован", "moment"),
)


async def live_graph(view: View, text: Callable[[], Awaitable[str]], label: str) -> None:
    """Draw a Mermaid graph, and draw it again when its text changes; nothing without text."""
    if not await text():
        return
    first = await view.watch(text, lambda content: graph.set_content(content))
    # On a light background, because the colours are chosen for it.
    with ui.element("section").classes("card"):
        graph = ui.mermaid(first, config={"securityLevel": "strict", "theme": "neutral"})
    # On a phone a graph scrolls, which must be possible with a keyboard as well.
    graph.classes("graph").props(f'role="img" aria-label="{label}" tabindex="0"')


def _waiting_graph(waits: Sequence[Row]) -> str:
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
    cells = {**message_cell("iid"), **message_cell("before_iid")}
    await show_resource(view, WAITS, cells=cells, sort="added")


@page("/bus/sagas", "sagas", "saga.title")
async def _sagas(view: View) -> None:
    await show_resource(view, SAGAS, to=("bus", "sagas"))


def _step_row(one: SagaStep) -> Row:
    """Return a step with the queue and message of its work: its compensation once posted."""
    is_undone = one.step_state in ("compensating", "compensated", "parked") and one.undo_iid
    queue, iid = (one.undo_queue, one.undo_iid) if is_undone else (one.do_queue, one.do_iid)
    return {
        **asdict(one),
        "step": one.step + (" ◆" if one.is_pivot else ""),
        "queue": queue,
        "iid": iid,
        "attempts": one.attempts + one.undo_attempts,
        "error": one.undo_error or one.step_error,
    }


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
        # The states are shown in the user's language.
        text = mermaid(await steps()).replace("-. undo .->", f"-. {t('saga.compensation')} .->")
        return re.sub(r'<br/>(\w+)"', lambda word: f'<br/>{t.state(word[1])}"', text)

    async def listed() -> Markup:
        found = [_step_row(one) for one in await steps()]
        return part_table(view, STEPS, found, cells=cells, label=t("saga.steps"))

    cells = {**link_cell("queue", "bus", "queues", class_=""), **message_cell("iid")}
    await action_buttons(view, [CANCEL, RETRY], row)
    await view.live(head)
    await live_graph(view, graph, t("saga.graph"))
    await view.live(listed)
