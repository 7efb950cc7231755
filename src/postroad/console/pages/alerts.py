"""Alerts: open problems and past alerts, acknowledged one by one or all, and their channels."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from postroad.alerts import operations, status
from postroad.alerts.status import Alert
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
    table,
)
from postroad.console.parts.dialogs import action_button, confirm, row_button
from postroad.console.parts.lists import empty, severity_badge, tabs
from postroad.console.parts.sorting import search_form, sortable
from postroad.console.view import View


def add_alert_pages(context: Context) -> None:
    """Register the page."""
    add_page(context, "/alerts", "alerts", "nav.alerts", _alerts)


async def open_alerts(view: View) -> Sequence[Alert]:
    """Return what is open now, shared by all pages."""
    connections = view.context.connections
    return await view.cached(
        "alerts.open", lambda: connections.run(status.list_alerts_async, limit=200)
    )


async def _alerts(view: View) -> None:
    t, connections = view.t, view.context.connections
    is_open = view.query("show") != "all"

    async def listed() -> Markup:
        if is_open:
            return _incident_table(view, await incidents(view))
        found = await view.cached(
            "alerts.all",
            lambda: connections.run(status.list_alerts_async, is_open=False, limit=200),
        )
        return _incident_table(view, [from_alert(one) for one in found])

    async def channels() -> Markup:
        found = await view.cached(
            "alerts.channels", lambda: connections.run(status.list_channels_async), 5
        )
        return card(
            t("alert.channels"),
            table(
                [
                    Column(t("alert.channel")),
                    Column(t("alert.kind")),
                    Column(t("alert.least")),
                    Column(t("alert.sent"), "num"),
                    Column(t("alert.waiting"), "num"),
                    Column(t("alert.last"), "nowrap"),
                    Column(t("bus.error")),
                ],
                [
                    (
                        one.name,
                        one.kind,
                        t.state(one.least_severity),
                        number(one.sent),
                        number(one.waiting),
                        moment(one.last_sent_at),
                        one.error or NOTHING,
                    )
                    for one in found
                ],
                label=t("alert.channels"),
                empty=empty(t("alert.no_channel"), element("code", t("alert.no_channel_advice"))),
            ),
        )

    async def acknowledge() -> None:
        await confirm(
            view,
            t("alert.ack"),
            t("alert.ack_question"),
            lambda: view.act(
                "alerts.ack",
                "*",
                lambda: connections.run(operations.ack_async, None, by=view.session.account),
            ),
            is_danger=False,
        )

    async def is_any_unacknowledged() -> bool:
        return any(one.acked_at is None for one in await open_alerts(view))

    async def acknowledge_one(key: str) -> None:
        by = view.session.account
        await view.act("alerts.ack", key, lambda: connections.run(operations.ack_async, key, by=by))

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
    with ui.element("div").classes("row"):
        ui.html(search_form(view, t("alert.search_hint")), sanitize=False)
        ui.space()
        button = action_button(view, t("alert.ack"), acknowledge, test="ack")
    await view.offer(button, is_any_unacknowledged)
    await view.live(listed)
    await view.live(channels)


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
                _what(one.title, one.body, one.key, one.href),
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


def _what(title: str, body: str, key: str | None, href: str) -> Markup:
    return joined(
        (
            link(element("strong", title), href),
            element("div", body, class_="note") if body else None,
            element("div", key, class_="note mono") if key else None,
        )
    )
