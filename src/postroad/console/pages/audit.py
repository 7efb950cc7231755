"""The audit: who did what, page by page, however long it has grown."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from postroad.console.accounts import AuditRow
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    element,
    joined,
    moment,
    table,
)
from postroad.console.parts.lists import empty, filter_form, nothing_found, pager
from postroad.console.view import View


async def audit_page(view: View) -> None:
    """List what was done, the latest first."""
    t, search, before = view.t, view.query("search"), view.place("before")

    async def listed() -> Markup:
        page = await view.cached(
            ("audit", search, before),
            lambda: view.context.accounts.audit(before, search=search or None),
        )
        following = (
            address("audit", search=search, before=page.next_before)
            if page.next_before is not None
            else None
        )
        first = address("audit", search=search) if before is not None else None
        note = t("bus.search_goes_on") if search and following else ""
        shown = (
            nothing_found(t, address("audit"))
            if search and not page.rows
            else _audit_table(view, page.rows)
        )
        return joined((shown, pager(t, first, following, note)))

    ui.html(
        filter_form(t, address("audit"), search=search, hint=t("audit.search_hint")), sanitize=False
    )
    await view.live(listed)


def _detail(one: AuditRow) -> Markup | str:
    """Say what was given and what went wrong; nothing where there is nothing to say."""
    given = ", ".join(f"{name}={value}" for name, value in one.detail.items())
    told = [element("div", text, class_="note") for text in (given, one.error) if text]
    return joined(told) or NOTHING


def _audit_table(view: View, rows: Sequence[AuditRow]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("audit.at"), "nowrap"),
            Column(t("account.name")),
            Column(t("audit.action")),
            Column(t("audit.target")),
            Column(t("audit.outcome")),
            Column(t("audit.detail")),
            Column(t("audit.address"), "mono"),
        ],
        [
            (
                moment(one.at),
                joined((one.account, " ", element("span", t(f"role.{one.role}"), class_="note"))),
                element("span", one.action, class_="mono"),
                one.target,
                badge(t.state(one.outcome), one.outcome),
                _detail(one),
                one.address,
            )
            for one in rows
        ],
        label=t("nav.audit"),
        empty=empty(t("audit.none")),
    )
