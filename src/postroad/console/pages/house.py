"""Pages about the house itself: workers, settings, accounts."""

from __future__ import annotations

from nicegui import ui

from postroad.console.accounts import ROLES
from postroad.console.frame import add_page
from postroad.console.house import House
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    badge,
    card,
    element,
    moment,
    number,
    table,
)
from postroad.console.pages.audit import audit_page
from postroad.console.parts.dialogs import (
    buttons,
    confirm,
    form_dialog,
    press_button,
    row_button,
)
from postroad.console.parts.lists import empty
from postroad.console.parts.sorting import ranked, search_form, sortable
from postroad.console.passwords import check_password, new_password
from postroad.console.view import View

__all__ = ["add_house_pages", "service_summary", "service_table"]


def add_house_pages(house: House) -> None:
    """Register the pages."""
    add_page(house, "/workers", "workers", "nav.workers", _workers)
    add_page(house, "/settings", "settings", "nav.settings", _settings, role="admin")
    add_page(house, "/accounts", "accounts", "nav.accounts", _accounts, role="admin")
    add_page(house, "/audit", "audit", "nav.audit", audit_page, role="admin")


async def service_summary(view: View) -> Markup:
    """Show how every service stands, in few words."""
    t = view.t
    found = await view.look("services", view.house.services.read)
    return table(
        [
            Column(t("worker.service"), "nowrap"),
            Column(t("common.state")),
            Column(t("worker.restarts"), "num"),
            Column(t("worker.since"), "nowrap"),
        ],
        [
            (
                one.name,
                badge(t.state(one.state), one.state),
                number(one.restarts),
                moment(one.since),
            )
            for one in found
        ],
        label=t("worker.services"),
        empty=empty(t("worker.none"), element("code", "postroad up")),
    )


async def service_table(view: View) -> Markup:
    """Show how every service stands."""
    t = view.t
    found = await view.look("services", view.house.services.read)
    return sortable(
        view,
        "services",
        [
            Column(t("worker.service")),
            Column(t("common.state")),
            Column(t("worker.host")),
            Column("pid", "num"),
            Column(t("worker.restarts"), "num"),
            Column(t("worker.since"), "nowrap"),
            Column(t("bus.error"), "wide"),
            Column(""),
        ],
        [
            (
                one.name,
                badge(t.state(one.state), one.state),
                one.host,
                one.pid or NOTHING,
                number(one.restarts),
                moment(one.since),
                one.error or NOTHING,
                (row_button(view, t("worker.forget"), "forget", one.host) or "")
                if one.state == "lost"
                else "",
            )
            for one in found
        ],
        label=t("worker.services"),
        empty=empty(t("worker.none"), element("code", "postroad up")),
    )


async def _workers(view: View) -> None:
    t = view.t

    async def services() -> Markup:
        return card(t("worker.services"), await service_table(view))

    async def sessions() -> Markup:
        found = await view.look("sessions", view.house.database.sessions, 5)
        return card(
            t("worker.sessions"),
            sortable(
                view,
                "sessions",
                [
                    Column(t("worker.application")),
                    Column(t("common.state")),
                    Column(t("worker.count"), "num"),
                    Column(t("worker.oldest_transaction"), "num"),
                ],
                [
                    (
                        one.application,
                        badge(t.state(one.state), one.state),
                        number(one.count),
                        ranked(t.age(one.oldest_age), one.oldest_age.total_seconds())
                        if one.oldest_age
                        else NOTHING,
                    )
                    for one in found
                ],
                label=t("worker.sessions"),
                empty=empty(t("worker.no_session")),
            ),
            note=element("span", t("worker.sessions_note"), class_="note"),
        )

    async def forget(host: str) -> None:
        await view.act("service.forget", host, lambda: view.house.services.forget(host))
        view.house.looks.forget("services")
        await view.refresh()

    view.on_row("forget", forget)
    ui.html(search_form(view), sanitize=False)
    await view.live(services)
    await view.live(sessions)


async def _settings(view: View) -> None:
    t = view.t
    rows = [
        (
            element("span", one.name, class_="mono"),
            element("span", NOTHING if one.value is None else str(one.value), class_="mono"),
            badge(one.source, "new") if one.source != "default" else badge(t("setting.default")),
        )
        for one in view.house.effective
    ]
    ui.html(search_form(view), sanitize=False)
    ui.html(
        sortable(
            view,
            "settings",
            [Column(t("setting.name")), Column(t("setting.value")), Column(t("setting.source"))],
            rows,
            label=t("nav.settings"),
            empty=empty(t("setting.none")),
        ),
        sanitize=False,
    )


async def _accounts(view: View) -> None:
    t, accounts = view.t, view.house.accounts

    async def listed() -> Markup:
        return sortable(
            view,
            "accounts",
            [
                Column(t("account.name")),
                Column(t("account.role")),
                Column(t("account.kind")),
                Column(t("account.sessions"), "num"),
                Column(t("common.created"), "nowrap"),
                Column(t("account.changed"), "nowrap"),
            ],
            [
                (
                    one.name,
                    badge(t(f"role.{one.role}")),
                    one.issuer or t("account.local"),
                    number(one.sessions),
                    moment(one.created_at),
                    moment(one.changed_at),
                )
                for one in await accounts.all()
            ],
            label=t("nav.accounts"),
            empty=empty(t("account.none")),
        )

    async def put() -> None:
        with form_dialog(t("account.put")) as dialog, ui.card().classes("dialog"):
            ui.html(element("h2", t("account.put")), sanitize=False)
            name = ui.input(t("account.name")).props('outlined dense data-test="account-name"')
            role = ui.select(
                {each: t(f"role.{each}") for each in ROLES}, value="viewer", label=t("account.role")
            ).props("outlined dense")
            password = ui.input(t("account.password"), value=new_password()).props("outlined dense")
            buttons(view, dialog, t("common.save"), test="account-save")
        dialog.open()
        if await dialog:
            given = str(name.value or ""), str(password.value or "")

            async def save() -> str:
                await accounts.put(given[0], role.value, check_password(given[1]))
                return given[0]

            await view.act("account.put", given[0], save, role="admin", detail={"role": role.value})
            await view.refresh()
        dialog.delete()

    async def drop() -> None:
        with form_dialog(t("account.drop")) as dialog, ui.card().classes("dialog"):
            ui.html(element("h2", t("account.drop")), sanitize=False)
            names = [one.name for one in await accounts.all() if one.name != view.session.account]
            chosen = ui.select(names, label=t("account.name")).props("outlined dense")
            buttons(view, dialog, t("account.drop"), tone="danger", test="account-drop")
        dialog.open()
        if await dialog and chosen.value:
            name = str(chosen.value)
            if await confirm(view, t("account.drop"), t("account.drop_question", name=name)):
                await view.act("account.drop", name, lambda: accounts.drop(name), role="admin")
                await view.refresh()
        dialog.delete()

    with ui.element("div").classes("row"):
        ui.html(search_form(view), sanitize=False)
        ui.space()
        press_button(t("account.put"), put, "main", "account-put")
        press_button(t("account.drop"), drop, "danger")
    await view.live(listed)
