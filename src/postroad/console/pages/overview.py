"""The overview: message flow as a map with live rates, problems, status of the services."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nicegui import ui

from postroad.console.flow_map import Map, draw, draw_list
from postroad.console.flow_map import figures as map_figures
from postroad.console.frame import page
from postroad.console.incidents import Incident, incidents
from postroad.console.markup import Markup, address, card, element, joined, link, number
from postroad.console.pages.bus import bus_figures
from postroad.console.pages.flow import flow_of
from postroad.console.parts.lists import empty, figures, severity_badge
from postroad.console.parts.resources import part_table
from postroad.console.resources import SERVICES
from postroad.console.view import View

MAX_INCIDENTS = 8


@page("/", "overview", "overview.title")
async def _overview(view: View) -> None:
    t = view.t

    async def flow() -> Map:
        return await flow_of(view)

    async def totals() -> Markup:
        wrong = await incidents(view)
        open_ones = [one for one in wrong if not one.is_handled]
        tone = "bad" if any(one.is_urgent for one in wrong) else "wait" if open_ones else "good"
        alerts = (t("overview.alerts"), number(len(open_ones)), tone)
        return figures([alerts, *bus_figures(view, await view.status())])

    async def problems() -> Markup:
        return _incident_card(view, await incidents(view))

    async def health() -> Markup:
        found = await view.rows(SERVICES)
        shown = part_table(view, SERVICES.listed[:4], found, t("empty.console.services"))
        return card(t("overview.health"), shown)

    await view.live(totals)
    first = await flow()
    note = element("span", t("overview.map_note"), class_="note")
    with ui.element("section").classes("card"):
        ui.html(
            element("div", element("h2", t("overview.map")), note, class_="card-head"),
            sanitize=False,
        )
        picture = ui.html(_picture(view, first), sanitize=False).classes("map")
        picture.props('tabindex="0"')
    shape = first.shape

    async def move() -> None:
        nonlocal shape
        now = await flow()
        if now.shape != shape:
            shape = now.shape
            picture.set_content(_picture(view, now))
            return
        edges, nodes = map_figures(now)
        ui.run_javascript(f"postroadMap.update({json.dumps(edges)}, {json.dumps(nodes)})")

    view.on_refresh(move)
    with ui.element("div").classes("columns"):
        await view.live(problems)
        await view.live(health)


def _picture(view: View, flow: Map) -> Markup:
    if not flow.nodes:
        advice = joined((view.t("overview.nothing_advice"), " ", element("code", "postroad up")))
        return element("div", empty(view.t("overview.nothing"), advice), class_="empty")
    label = view.t("overview.map")
    # A phone shows one of the two, a large screen the other; both are updated.
    return joined((draw(flow, label), draw_list(flow, label)))


def _incident_card(view: View, wrong: Sequence[Incident]) -> Markup:
    t = view.t
    if not wrong:
        none = element("div", empty(t("empty.alerts.incidents")), class_="empty")
        return card(t("overview.alerts"), none)
    lines = [
        element(
            "li",
            severity_badge(view, one),
            " ",
            link(one.title, one.href),
            class_="bad" if one.is_urgent else "",
        )
        for one in wrong[:MAX_INCIDENTS]
    ]
    more = len(wrong) - MAX_INCIDENTS
    rest = link(f"+ {more}", address("alerts"), class_="note") if more > 0 else None
    return card(t("overview.alerts"), element("ul", lines, class_="timeline"), rest)
