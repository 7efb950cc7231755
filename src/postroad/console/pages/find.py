"""One search over all components; shows the path of a message or file in order of time."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from nicegui import ui

import postroad.bus.resources as bus
import postroad.coordination.resources as coordination
import postroad.exchange.resources as exchange
import postroad.intake.resources as intake
from postroad.console.frame import page
from postroad.console.markup import Markup, address, element, link
from postroad.console.parts.lists import empty
from postroad.console.parts.resources import resource_table
from postroad.console.view import AWAY, View
from postroad.operate import Row
from postroad.operate.journey import STEPS, Search, found, searched

RESOURCES = searched(bus, exchange, coordination, intake)


@page("/find", "overview", "find.title")
async def _find(view: View) -> None:
    t, text = view.t, view.query("q")

    async def shown() -> Markup:
        steps = await view.cached(("find", t.language, text), partial(_steps, view, text), 5)
        none = empty(t("find.none", text=text), element("p", t("find.hint")))
        return resource_table(view, STEPS, steps, cells={"id": _link, "component": name}, none=none)

    def name(row: Row) -> str:
        return t(f"nav.{row['component']}")

    if text:
        await view.live(shown)
    else:
        ui.html(element("p", t("find.hint"), class_="note"), sanitize=False)


def _link(row: Row) -> Markup:
    # A message of the bus has a step for each consumer, and one page.
    identity = row["identity"].partition(" ")[0]
    return link(row["id"], address(*row["resource"].split("."), identity), class_="mono")


async def _steps(view: View, text: str) -> list[Row]:
    search = Search(text)
    while wanted := search.round():
        for resource in RESOURCES:
            with suppress(*AWAY):
                rows = await view.place_of(resource).run(found, resource, wanted)
                search.add(resource, rows, view.t.language)
    return search.steps
