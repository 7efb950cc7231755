"""Alerts: open problems and past alerts, taken or muted one by one or all, and their channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from nicegui import ui

from postroad.alerts.resources import ACK, ALERTS, CHANNELS, HANDLING
from postroad.console.frame import page
from postroad.console.incidents import INCIDENTS, Incident, from_alert, open_alerts
from postroad.console.markup import Markup, address, element, joined, link, moment
from postroad.console.parts.actions import bulk_buttons
from postroad.console.parts.lists import severity_badge, tabs
from postroad.console.parts.resources import show_resource
from postroad.console.view import View
from postroad.operate import Row

_HANDLING = [replace(one, on=INCIDENTS) for one in HANDLING]
# Problems that the console detects cannot be acknowledged, only taken.
_HANDLING[0] = replace(_HANDLING[0], when={"owner": (None,)})


@page("/alerts", "alerts", "nav.alerts")
async def _alerts(view: View) -> None:
    t = view.t
    is_open = view.query("show") != "all"

    async def is_any_unacknowledged() -> bool:
        return any(one["acked_at"] is None for one in await open_alerts(view))

    open_ones = (t("alert.open"), address("alerts"), is_open, None)
    every = (t("common.all"), address("alerts", show="all"), not is_open, None)
    ui.html(tabs(t, (open_ones, every)), sanitize=False)

    def one(row: Row) -> Incident:
        return row["incident"] if is_open else from_alert(row)

    cells: dict[str, Callable[[Row], object]] = {
        "severity": lambda row: severity_badge(view, one(row)),
        "title": lambda row: _what(view, one(row)),
        **{name: partial(_component, view, name) for name in ("component", "room")},
    }
    if is_open:
        for button in bulk_buttons(view, {}, (ACK,)):
            await view.offer(button, is_any_unacknowledged)
    resource, handling = (INCIDENTS, _HANDLING) if is_open else (ALERTS, ())
    await show_resource(view, resource, cells=cells, row_actions=handling)
    title, advice = t("alert.channels"), element("code", t("empty.alerts.channels_advice"))
    await show_resource(view, CHANNELS, title=title, advice=advice, name="channel_")


def _component(view: View, name: str, row: Row) -> str:
    return view.t.entries.get(f"nav.{row[name]}", row[name])


def _what(view: View, one: Incident) -> Markup:
    muted = None
    if one.muted_until is not None:
        reason = f" · {one.muted_by}: {one.mute_reason}"
        until = joined((view.t("alert.muted_until"), " ", moment(one.muted_until), reason))
        muted = element("div", until, class_="note")
    return joined(
        (
            link(element("strong", one.title), one.href),
            element("div", one.body, class_="note") if one.body else None,
            element("div", one.key, class_="note mono"),
            muted,
        )
    )
