"""Shared by the pages of the exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from postroad.console.markup import NOTHING, Markup, address, badge, link
from postroad.console.view import View
from postroad.exchange import status
from postroad.exchange.resources import DATABASES


async def databases(view: View) -> Sequence[dict[str, Any]]:
    """Return the databases with their message counts, shared by all pages."""
    return (await view.load("exchange.databases", DATABASES.page, limit=1000)).rows


async def traffic(view: View) -> Mapping[str, Mapping[str, Any]]:
    """Return incoming and outgoing rates by database, shared by all pages."""
    return {one["id"]: one for one in await view.load("exchange.traffic", status.traffic)}


def process_link(view: View, process: str | None, state: str | None) -> Markup | str:
    """Link to a process with its state as the text, or its id without one."""
    if process is None:
        return NOTHING
    word = badge(view.t.state(state.lower()), state.lower()) if state else process[:13]
    return link(word, address("exchange", "processes", process))
