"""Bridges: what each carries, how far it is behind, and what keeps it from working."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nicegui import ui
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from postroad.bridge import operations, status
from postroad.bridge.status import BridgeStatus
from postroad.console.context import Context
from postroad.console.frame import add_page
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    element,
    link,
    moment,
    number,
    rate,
)
from postroad.console.parts.dialogs import row_button
from postroad.console.parts.lists import empty
from postroad.console.parts.sorting import ranked, search_form, sortable
from postroad.console.view import View

VERBS = ("pause", "resume", "drain")


def add_bridge_pages(context: Context) -> None:
    """Register the page."""
    add_page(context, "/bridges", "bridges", "nav.bridges", _bridges)


async def bridges(view: View) -> Sequence[BridgeStatus]:
    """Return the status of all bridges, shared by all pages."""
    addresses = view.context.components.bridge_addresses
    if addresses is None:
        return ()
    return await view.cached("bridges", lambda: status.status(addresses), 3)


async def _bridges(view: View) -> None:
    addresses = view.context.components.bridge_addresses

    async def listed() -> Markup:
        return _bridge_table(view, await bridges(view))

    def change(verb: str) -> Callable[[str], Awaitable[None]]:
        do: Callable[..., Awaitable[Any]] = getattr(operations, verb)

        async def ask(name: str) -> None:
            await view.act(f"bridge.{verb}", name, lambda: do(addresses, name))

        return ask

    if addresses is not None:
        for verb in VERBS:
            view.on_row(verb, change(verb))
    if await bridges(view):
        ui.html(search_form(view), sanitize=False)
    await view.live(listed)


def _bridge_table(view: View, found: Sequence[BridgeStatus]) -> Markup:
    t = view.t
    return sortable(
        view,
        "bridges",
        [
            Column(t("bridge.bridge")),
            Column(t("common.state")),
            Column(t("bridge.way"), "wide"),
            Column(t("bridge.lag"), "num"),
            Column(t("bus.oldest"), "num"),
            Column(t("bridge.rate"), "num"),
            Column(t("bridge.refused"), "num"),
            Column(t("bridge.last"), "nowrap"),
            Column(t("bridge.problem")),
            Column(""),
        ],
        [
            (
                one.name,
                badge(t.state(one.state), one.state),
                element(
                    "span",
                    _queue(one.source, one.queue),
                    " → ",
                    _queue(one.target, one.queue_at_target),
                    class_="way",
                ),
                number(one.lag),
                ranked(t.age(one.lag_age), one.lag_age.total_seconds()) if one.lag_age else NOTHING,
                rate(one.per_second),
                badge(number(one.refused), "bad") if one.refused else "0",
                moment(one.last_at),
                element("span", one.problem, class_="badge bad") if one.problem else NOTHING,
                _buttons(view, one),
            )
            for one in found
        ],
        label=t("nav.bridges"),
        empty=empty(
            t("bridge.none"),
            element("code", "postroad bridge add orders --to 'host=… dbname=…'"),
        ),
    )


def place_name(place: str) -> str:
    """Name an end of a bridge: as the settings do, or a database by its own name."""
    try:
        facts = conninfo_to_dict(place)
    except ProgrammingError:
        return place
    return str(facts.get("dbname") or place)


def _queue(place: str, queue: str) -> Markup | str:
    if place == "home":
        return link(queue, address("bus", "queues", queue))
    return element("span", f"{place_name(place)}/{queue}", title=place)


def _buttons(view: View, one: BridgeStatus) -> Markup:
    """Offer what changes something: who rests can go on, who runs can rest."""
    t = view.t
    words = {"pause": t("bridge.pause"), "drain": t("bridge.drain"), "resume": t("bridge.resume")}
    verbs = ("pause", "drain") if one.state == "running" else ("resume",)
    return element(
        "div", [row_button(view, words[verb], verb, one.name) for verb in verbs], class_="acts"
    )
