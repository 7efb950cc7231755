"""Alerts: open problems and past alerts, acknowledged one by one or all, and their channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nicegui import ui

from postroad.alerts.resources import ACK, ALERTS, CHANNELS
from postroad.console.connections import Place
from postroad.console.frame import page
from postroad.console.incidents import INCIDENTS, Incident, from_alert
from postroad.console.markup import NOTHING, Markup, address, card, element, joined, link
from postroad.console.parts.dialogs import row_button
from postroad.console.parts.lists import empty, page_tabs, severity_badge
from postroad.console.parts.resources import bulk_buttons, resource_table, show_resource
from postroad.console.view import View
from postroad.operate import Row
from postroad.postgres.calls import Connection


async def open_alerts(view: View) -> Sequence[Row]:
    """Return the open alerts, shared by all pages."""
    return (await view.load("alerts.open", ALERTS.page, limit=200)).rows


@page("/alerts", "alerts", "nav.alerts")
async def _alerts(view: View) -> None:
    t, connections = view.t, view.context.connections
    is_open = view.query("show") != "all"

    async def channels() -> Markup:
        found = await view.load("alerts.channels", CHANNELS.all, age=5)
        none = empty(t("alert.no_channel"), element("code", t("alert.no_channel_advice")))
        return card(t("alert.channels"), resource_table(view, CHANNELS, found, none=none))

    async def is_any_unacknowledged() -> bool:
        return any(one["acked_at"] is None for one in await open_alerts(view))

    async def acknowledge_one(key: str) -> None:
        by = {"by": view.session.account}
        await view.act("alerts.ack", key, lambda: connections.run(_ack, by, key))

    view.on_row("ack", acknowledge_one)
    shown = {
        "open": ("alert.open", address("alerts")),
        "all": ("common.all", address("alerts", show="all")),
    }
    ui.html(page_tabs(view, "open" if is_open else "all", shown), sanitize=False)

    def one(row: Row) -> Incident:
        return row["incident"] if is_open else from_alert(row)

    cells: dict[str, Callable[[Row], object]] = {
        "severity": lambda row: severity_badge(view, one(row)),
        "title": lambda row: _what(one(row)),
        "acked_by": lambda row: _acked(view, one(row)),
        **{name: partial(_component, view, name) for name in ("component", "room")},
    }
    if is_open:
        for button in bulk_buttons(view, connections, {}, (ACK,)):
            await view.offer(button, is_any_unacknowledged)
    resource, place = (INCIDENTS, Place(view)) if is_open else (ALERTS, connections)
    none, advice = "overview.no_alerts", t("alert.none_advice")
    await show_resource(view, resource, place, cells=cells, none=none, advice=advice)
    await view.live(channels)


async def _ack(connection: Connection, by: Mapping[str, str], key: str) -> int:
    return int((await ACK.run(connection, by, keys=[key]))["acked"])


def _component(view: View, name: str, row: Row) -> str:
    """Return the name of a component as in the navigation."""
    return view.t.entries.get(f"nav.{row[name]}", row[name])


def _acked(view: View, one: Incident) -> Markup | str:
    if one.acked_by is not None or one.key is None or one.cleared_at is not None:
        return one.acked_by or NOTHING
    return row_button(view, view.t("alert.ack_one"), "ack", one.key) or NOTHING


def _what(one: Incident) -> Markup:
    return joined(
        (
            link(element("strong", one.title), one.href),
            element("div", one.body, class_="note") if one.body else None,
            element("div", one.key, class_="note mono") if one.key else None,
        )
    )
