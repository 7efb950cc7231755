"""Alerts: open problems and past alerts, acknowledged one by one or all, and their channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui
from psycopg import AsyncConnection

from postroad.alerts.resources import ACK, ALERTS, CHANNELS
from postroad.console.context import Context
from postroad.console.frame import add_page
from postroad.console.incidents import Incident, from_alert, incidents
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    card,
    element,
    joined,
    link,
    moment,
    number,
)
from postroad.console.parts.dialogs import row_button
from postroad.console.parts.lists import empty, severity_badge, tabs
from postroad.console.parts.resources import bulk_buttons, resource_table, show_resource
from postroad.console.parts.sorting import search_form, sortable
from postroad.console.view import View
from postroad.operate import Row


def add_alert_pages(context: Context) -> None:
    """Register the page."""
    add_page(context, "/alerts", "alerts", "nav.alerts", _alerts)


async def open_alerts(view: View) -> Sequence[Row]:
    """Return the open alerts, shared by all pages."""
    connections = view.context.connections
    page = await view.cached("alerts.open", lambda: connections.run(ALERTS.page, limit=200))
    return page.rows


async def _alerts(view: View) -> None:
    t, connections = view.t, view.context.connections
    is_open = view.query("show") != "all"

    async def listed() -> Markup:
        return _incident_table(view, await incidents(view))

    async def channels() -> Markup:
        found = await view.cached("alerts.channels", lambda: connections.run(CHANNELS.all), 5)
        none = empty(t("alert.no_channel"), element("code", t("alert.no_channel_advice")))
        return card(t("alert.channels"), resource_table(view, CHANNELS, found, none=none))

    async def is_any_unacknowledged() -> bool:
        return any(one["acked_at"] is None for one in await open_alerts(view))

    async def acknowledge_one(key: str) -> None:
        by = {"by": view.session.account}
        await view.act("alerts.ack", key, lambda: connections.run(_ack, by, key))

    view.on_row("ack", acknowledge_one)
    ui.html(
        tabs(
            t,
            [
                (t("alert.open"), address("alerts"), is_open, None),
                (t("common.all"), address("alerts", show="all"), not is_open, None),
            ],
        ),
        sanitize=False,
    )
    if is_open:
        ui.html(search_form(view, t("alert.search_hint")), sanitize=False)
        for button in bulk_buttons(view, connections, ALERTS, {}, (ACK,)):
            await view.offer(button, is_any_unacknowledged)
        await view.live(listed)
    else:
        await show_resource(
            view,
            connections,
            ALERTS,
            ["alerts"],
            cells={
                "severity": lambda row: severity_badge(view, from_alert(row)),
                "title": lambda row: _what(from_alert(row)),
                "acked_by": lambda row: _acked(view, from_alert(row)),
            },
            none=(t("overview.no_alerts"), t("alert.none_advice")),
        )
    await view.live(channels)


async def _ack(connection: AsyncConnection[Any], by: Mapping[str, str], key: str) -> int:
    return int((await ACK.run(connection, by, keys=[key]))["acked"])


def _incident_table(view: View, found: Sequence[Incident]) -> Markup:
    t = view.t
    return sortable(
        view,
        "alerts",
        [
            Column(t("alert.severity")),
            Column(t("alert.what"), "wide"),
            Column(t("alert.room")),
            Column(t("alert.count"), "num"),
            Column(t("alert.raised"), "nowrap"),
            Column(t("alert.last"), "nowrap"),
            Column(t("alert.seen_by")),
            Column(t("alert.cleared"), "nowrap"),
        ],
        [
            (
                severity_badge(view, one),
                _what(one),
                one.component,
                number(one.count),
                moment(one.since),
                moment(one.last_at),
                _acked(view, one),
                moment(one.cleared_at),
            )
            for one in found
        ],
        label=t("nav.alerts"),
        empty=empty(t("overview.no_alerts"), t("alert.none_advice")),
    )


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
