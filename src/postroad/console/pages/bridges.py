"""Bridges: what each carries, how far it is behind, and what keeps it from working."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nicegui import ui

from postroad.bridge import operations, status
from postroad.bridge.status import BridgeStatus
from postroad.console.frame import add_page
from postroad.console.house import House
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    age,
    badge,
    element,
    joined,
    link,
    moment,
    number,
    rate,
    table,
)
from postroad.console.parts.dialogs import buttons, form_dialog, press_button
from postroad.console.parts.lists import empty
from postroad.console.view import View

__all__ = ["add_bridge_pages", "bridges"]


def add_bridge_pages(house: House) -> None:
    """Register the page."""
    add_page(house, "/bridges", "bridges", "nav.bridges", _bridges)


async def bridges(view: View) -> Sequence[BridgeStatus]:
    """Return how all bridges stand, shared by all pages."""
    addresses = view.house.rooms.bridge_addresses
    if addresses is None:
        return ()
    return await view.look("bridges", lambda: status.status(addresses), 3)


async def _bridges(view: View) -> None:
    t, addresses = view.t, view.house.rooms.bridge_addresses

    async def listed() -> Markup:
        return _bridge_table(view, await bridges(view))

    def change(verb: str, do: Callable[..., Awaitable[Any]]) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            names = [one.name for one in await bridges(view)]
            if not names:
                view.tell(t("bridge.none"))
                return
            with form_dialog(t(f"bridge.{verb}")) as dialog, ui.card().classes("dialog"):
                ui.html(element("h2", t(f"bridge.{verb}")), sanitize=False)
                chosen = ui.select(names, value=names[0], label=t("bridge.bridge"))
                chosen.props("outlined dense")
                buttons(view, dialog, t(f"bridge.{verb}"), test="confirm")
            dialog.open()
            if await dialog:
                name = str(chosen.value)
                await view.act(f"bridge.{verb}", name, lambda: do(addresses, name))
                view.house.looks.forget("bridges")
                await view.refresh()
            dialog.delete()

        return ask

    if view.may("operator") and addresses is not None:
        with ui.element("div").classes("row"):
            press_button(t("bridge.pause"), change("pause", operations.pause), test="pause")
            press_button(t("bridge.resume"), change("resume", operations.resume), test="resume")
            press_button(t("bridge.drain"), change("drain", operations.drain), test="drain")
    await view.live(listed)


def _bridge_table(view: View, found: Sequence[BridgeStatus]) -> Markup:
    t = view.t
    return table(
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
        ],
        [
            (
                one.name,
                badge(t.state(one.state), one.state),
                joined(
                    (
                        _queue(one.source, one.queue),
                        " → ",
                        _queue(one.target, one.queue_at_target),
                    )
                ),
                number(one.lag),
                age(one.lag_age),
                rate(one.per_second),
                badge(number(one.refused), "bad") if one.refused else "0",
                moment(one.last_at),
                element("span", one.problem, class_="badge bad") if one.problem else NOTHING,
            )
            for one in found
        ],
        label=t("nav.bridges"),
        empty=empty(
            t("bridge.none"),
            element("code", "postroad bridge add orders --to 'host=… dbname=…'"),
        ),
    )


def _queue(place: str, queue: str) -> Markup | str:
    if place == "home":
        return link(queue, address("bus", "queues", queue))
    return f"{place}/{queue}"
