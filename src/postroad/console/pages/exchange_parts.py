"""What the pages of the exchange share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from postroad.console.markup import (
    NOTHING,
    Markup,
    address,
    badge,
    link,
)
from postroad.console.parts.lists import tabs
from postroad.console.view import View
from postroad.exchange import status

__all__ = ["databases", "exchange_tabs", "process_link", "traffic"]


async def databases(view: View) -> Sequence[Mapping[str, Any]]:
    """Return the databases and what lies in them, shared by all pages."""
    doors = view.house.doors
    return await view.look("exchange.databases", lambda: doors.ask_blocking(status.databases))


async def traffic(view: View) -> Mapping[str, Mapping[str, Any]]:
    """Return what comes in and goes out by database, shared by all pages."""
    doors = view.house.doors
    found = await view.look("exchange.traffic", lambda: doors.ask_blocking(status.traffic))
    return {one["id"]: one for one in found}


def exchange_tabs(view: View, shown: str) -> Markup:
    """Lead to the parts of the room."""
    t = view.t
    return tabs(
        t,
        [
            (t("exchange.processes"), address("exchange"), shown == "processes", None),
            (t("exchange.messages"), address("exchange", "messages"), shown == "messages", None),
        ],
    )


def process_link(view: View, process: str | None, state: str | None) -> Markup | str:
    """Lead to a process by the word for its state."""
    if process is None or state is None:
        return NOTHING
    word = badge(view.t.state(state.lower()), state.lower())
    return link(word, address("exchange", "processes", process))
