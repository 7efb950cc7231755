"""Graphs: messages that wait for each other, and sagas coloured by the state of their steps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nicegui import ui

from postroad.bus import AsyncSagas, SagaStep, operations
from postroad.bus import browse as looking
from postroad.bus.browse import SagaRow, Wait
from postroad.bus.saga_picture import mermaid
from postroad.console.context import Context
from postroad.console.frame import add_page
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    card,
    facts,
    link,
    moment,
    number,
    table,
)
from postroad.console.pages.bus import bus_tabs
from postroad.console.parts.dialogs import action_button, confirm
from postroad.console.parts.listing import listing, say_gone
from postroad.console.parts.lists import crumbs, empty, tabs
from postroad.console.parts.sorting import sortable
from postroad.console.view import View

SAGA_STATES = ("running", "compensating", "stuck", "completed", "compensated")


def add_graph_pages(context: Context) -> None:
    """Register the pages."""
    add_page(context, "/bus/waiting", "bus", "bus.waiting", _waiting)
    add_page(context, "/bus/sagas", "sagas", "saga.title", _sagas)
    add_page(context, "/bus/sagas/{saga_id}", "sagas", "saga.one_title", _saga)


def live_graph(first: str, label: str) -> ui.mermaid:
    """Draw a Mermaid graph on a light ground, as its colours are made for one."""
    graph = ui.mermaid(first, config={"securityLevel": "strict", "theme": "neutral"}).classes(
        "graph"
    )
    # On a phone a graph scrolls, which a keyboard must be able to do as well.
    graph.props(f'role="img" aria-label="{label}" tabindex="0"')
    return graph


def _saga_graph(view: View, steps: Sequence[SagaStep]) -> str:
    """Draw a saga with its states in the person's language."""
    text = mermaid(steps).replace("-. undo .->", f"-. {view.t('saga.compensation')} .->")
    return re.sub(r'<br/>(\w+)"', lambda word: f'<br/>{view.t.state(word[1])}"', text)


def _waiting_graph(waits: Sequence[Wait]) -> str:
    """Draw arrows from what is waited for to what waits."""
    names: dict[str, str] = {}

    def node(iid: str) -> str:
        return names.setdefault(iid, f"n{len(names)}")

    lines = ["flowchart LR"]
    # In a stable order, so that the same facts give the same text and the graph is not drawn again.
    for wait in sorted(waits, key=lambda one: (one.added, one.iid, one.before_iid or "")):
        target = node(wait.iid)
        if wait.before_iid is not None:
            source = node(wait.before_iid)
            arrow = "-.->" if wait.before_state == "done" else "-->"
            lines.append(f"  {source} {arrow} {target}")
            lines.append(f"  class {source} {wait.before_state}")
        lines.append(f"  class {target} blocked")
    lines += [f'  {name}["{iid.replace("@", "#64;")}"]' for iid, name in names.items()]
    lines += [
        "  classDef blocked fill:#fff3bf,stroke:#b08800,color:#17212b",
        "  classDef pending fill:#d0ebff,stroke:#1864ab,color:#17212b",
        "  classDef reserved fill:#f1f3f5,stroke:#868e96,stroke-dasharray:4,color:#17212b",
        "  classDef done fill:#d3f9d8,stroke:#2b8a3e,color:#17212b",
    ]
    return "\n".join(lines)


async def _waiting(view: View) -> None:
    t, bus = view.t, view.context.bus

    async def found() -> Sequence[Wait]:
        return await view.cached("bus.waits", lambda: looking.waits(bus, limit=60))

    async def listed() -> Markup:
        return sortable(
            view,
            "waits",
            [
                Column(t("bus.waits"), "nowrap"),
                Column(t("bus.waits_for"), "nowrap"),
                Column(t("common.state")),
                Column(t("bus.added"), "nowrap"),
            ],
            [
                (
                    link(one.iid, address("bus", "messages", one.iid), class_="mono"),
                    link(one.before_iid, address("bus", "messages", one.before_iid), class_="mono")
                    if one.before_iid
                    else NOTHING,
                    badge(t.state(one.before_state), one.before_state),
                    moment(one.added),
                )
                for one in await found()
            ],
            label=t("bus.waiting"),
            empty=empty(t("bus.nobody_waits"), t("bus.nobody_waits_advice")),
        )

    ui.html(bus_tabs(view, "waiting"), sanitize=False)
    first = await found()
    if first:
        with ui.element("section").classes("card"):
            graph = live_graph(_waiting_graph(first), t("bus.waiting"))

            async def again() -> None:
                text = _waiting_graph(await found())
                if text != graph.content:
                    graph.set_content(text)

            view.on_refresh(again)
    await view.live(listed)


async def _sagas(view: View) -> None:
    t, bus = view.t, view.context.bus
    state = view.query("state") if view.query("state") in SAGA_STATES else None
    ui.html(
        tabs(
            t,
            [
                (t("common.all"), address("bus", "sagas"), state is None, None),
                *(
                    (t.state(each), address("bus", "sagas", state=each), each == state, None)
                    for each in SAGA_STATES
                ),
            ],
        ),
        sanitize=False,
    )

    async def listed() -> Markup:
        return await listing(
            view,
            ("bus", "sagas"),
            {"state": state or ""},
            lambda before, limit: looking.sagas(bus, state, before, limit),
            lambda page: _saga_table(view, page),
            lambda last: last.saga_id,
        )

    await view.live(listed)


def _saga_table(view: View, page: Sequence[SagaRow]) -> Markup:
    t = view.t
    return table(
        [
            Column("ID", "num"),
            Column(t("saga.name")),
            Column(t("common.state")),
            Column(t("saga.steps"), "num"),
            Column(t("bus.error"), "wide"),
            Column(t("common.created"), "nowrap"),
            Column(t("saga.finished"), "nowrap"),
        ],
        [
            (
                link(str(one.saga_id), address("bus", "sagas", one.saga_id)),
                link(one.saga, address("bus", "sagas", one.saga_id)),
                badge(t.state(one.saga_state), one.saga_state),
                f"{one.steps_done} / {one.steps}",
                one.error or NOTHING,
                moment(one.created_at),
                moment(one.finished_at),
            )
            for one in page
        ],
        label=t("saga.title"),
        empty=empty(t("saga.none"), t("saga.none_advice")),
    )


def _step_message(one: SagaStep) -> tuple[Markup | str, Markup | str]:
    """Link the queue and the message that the step is at: its compensation once that was posted."""
    is_undone = one.step_state in ("compensating", "compensated", "parked") and one.undo_iid
    queue, iid = (one.undo_queue, one.undo_iid) if is_undone else (one.do_queue, one.do_iid)
    return (
        link(queue, address("bus", "queues", queue)) if queue else NOTHING,
        link(iid, address("bus", "messages", iid), class_="mono") if iid else NOTHING,
    )


async def _saga(view: View) -> None:
    t, bus = view.t, view.context.bus
    saga_id = view.number("saga_id")

    async def found() -> list[SagaStep]:
        return await view.cached(("bus.saga", saga_id), lambda: AsyncSagas(bus).status(saga_id), 1)

    steps = await found()
    ui.html(
        crumbs((t("saga.title"), address("bus", "sagas")), (str(saga_id), None)), sanitize=False
    )
    if not steps:
        say_gone(t("saga.gone"))
        return

    async def head() -> Markup:
        first = (await found())[0]
        return card(
            first.saga,
            facts(
                [
                    (t("common.state"), badge(t.state(first.state), first.state)),
                    (t("common.created"), moment(first.created_at)),
                    (t("saga.deadline"), moment(first.deadline)),
                    (t("saga.finished"), moment(first.finished_at)),
                    (t("bus.error"), first.error or NOTHING),
                ]
            ),
        )

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
                for one in await found()
            ],
            label=t("saga.steps"),
            empty="",
        )

    async def cancel() -> None:
        await confirm(
            view,
            t("saga.cancel"),
            t("saga.cancel_question", saga_id=saga_id),
            lambda: view.act(
                "saga.cancel",
                str(saga_id),
                lambda: operations.cancel_saga(bus, saga_id, view.session.account),
            ),
        )

    async def retry() -> None:
        await confirm(
            view,
            t("saga.retry"),
            t("saga.retry_question", saga_id=saga_id),
            lambda: view.act(
                "saga.retry", str(saga_id), lambda: operations.retry_saga(bus, saga_id)
            ),
            is_danger=False,
        )

    async def is_in(*states: str) -> bool:
        return (await found() or steps)[0].state in states

    with ui.element("div").classes("row"):
        cancel_button = action_button(
            view, t("saga.cancel"), cancel, test="cancel-saga", is_danger=True
        )
        await view.offer(cancel_button, lambda: is_in("running"))
        retry_button = action_button(view, t("saga.retry"), retry, test="retry-saga")
        await view.offer(retry_button, lambda: is_in("stuck"))
    await view.live(head)
    with ui.element("section").classes("card"):
        graph = live_graph(_saga_graph(view, steps), t("saga.graph"))

        async def again() -> None:
            text = _saga_graph(view, await found())
            if text != graph.content:
                graph.set_content(text)

        view.on_refresh(again)
    await view.live(listed)
