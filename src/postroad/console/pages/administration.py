"""Pages about the context itself: workers, settings, accounts."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from postroad.console.accounts import ROLES, Account
from postroad.console.context import Context
from postroad.console.errors import NameTaken
from postroad.console.frame import add_page
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    badge,
    card,
    element,
    moment,
    number,
)
from postroad.console.pages.audit import audit_page
from postroad.console.parts.dialogs import ask, confirm, press_button, row_button
from postroad.console.parts.lists import empty
from postroad.console.parts.sorting import ranked, search_form, sortable
from postroad.console.passwords import check_password, new_password
from postroad.console.view import View


def add_house_pages(context: Context) -> None:
    """Register the pages."""
    add_page(context, "/workers", "workers", "nav.workers", _workers)
    add_page(context, "/settings", "settings", "nav.settings", _settings, role="admin")
    add_page(context, "/accounts", "accounts", "nav.accounts", _accounts, role="admin")
    add_page(context, "/audit", "audit", "nav.audit", audit_page, role="admin")


async def service_table(view: View, *, is_short: bool = False) -> Markup:
    """Show the status of every service."""
    t = view.t
    found = await view.cached("services", view.context.services.read)
    columns = {
        t("worker.service"): "nowrap",
        t("common.state"): "",
        t("worker.restarts"): "num",
        t("worker.since"): "nowrap",
    }
    rows: list[tuple[object, ...]] = [
        (one.name, badge(t.state(one.state), one.state), number(one.restarts), moment(one.since))
        for one in found
    ]
    if not is_short:
        columns |= {t("worker.host"): "", "pid": "num", t("bus.error"): "wide", "": ""}
        rows = [
            (
                *row,
                one.host,
                one.pid or NOTHING,
                one.error or NOTHING,
                (row_button(view, t("worker.forget"), "forget", one.host) or "")
                if one.state == "lost"
                else "",
            )
            for row, one in zip(rows, found, strict=True)
        ]
    return sortable(
        view,
        "services",
        [Column(title, kind) for title, kind in columns.items()],
        rows,
        label=t("worker.services"),
        is_searched=not is_short,
        empty=empty(t("worker.none"), element("code", "postroad up")),
    )


async def _workers(view: View) -> None:
    t = view.t

    async def services() -> Markup:
        return card(t("worker.services"), await service_table(view))

    async def sessions() -> Markup:
        found = await view.cached("sessions", view.context.database.sessions, 5)
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
        await view.act("service.forget", host, lambda: view.context.services.forget(host))

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
        for one in view.context.effective
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
    t, accounts = view.t, view.context.accounts

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
                Column(""),
            ],
            [
                (
                    one.name,
                    badge(t(f"role.{one.role}")),
                    one.issuer or t("account.local"),
                    number(one.sessions),
                    moment(one.created_at),
                    moment(one.changed_at),
                    _account_buttons(view, one),
                )
                for one in await accounts.all()
            ],
            label=t("nav.accounts"),
            empty=empty(t("account.none")),
        )

    async def put(existing: str | None) -> None:
        """Add an account, or change one: what is left as it is stays as it is."""
        known = {one.name: one for one in await accounts.all()}
        if existing is not None and existing not in known:
            view.notify(t("common.nothing_found"))
            return
        title = t("account.change", name=existing) if existing else t("account.add")
        fields: dict[str, Any] = {}

        def fill() -> None:
            if existing is None:
                fields["name"] = ui.input(t("account.name")).props(
                    'outlined dense data-test="account-name"'
                )
            fields["role"] = ui.select(
                {each: t(f"role.{each}") for each in ROLES},
                value=known[existing].role if existing else "viewer",
                label=t("account.role"),
            ).props('outlined dense data-test="account-role"')
            fields["password"] = ui.input(
                t("account.new_password") if existing else t("account.password"),
                value="" if existing else new_password(),
            ).props('outlined dense autocomplete="off" data-test="account-password"')

        async def submit() -> bool:
            name = existing or str(fields["name"].value or "")
            role, password = fields["role"].value, str(fields["password"].value or "")
            is_new_role = existing is None or role != known[existing].role

            async def save() -> str:
                if existing is None and name.lower() in known:
                    raise NameTaken(f"account {name} exists", hint="change it in its row")
                hashed = check_password(password) if password or existing is None else None
                await accounts.put(name, role if is_new_role else None, hashed)
                return name

            if existing and not is_new_role and not password:
                view.notify(t("account.unchanged"))
                return True
            detail = {"role": role, "password": "new" if password else "unchanged"}
            return await view.act("account.put", name, save, role="admin", detail=detail)

        await ask(view, title, t("common.save"), submit, fill=fill, test="account-save")

    async def drop(name: str) -> None:
        await confirm(
            view,
            t("account.drop"),
            t("account.drop_question", name=name),
            lambda: view.act("account.drop", name, lambda: accounts.drop(name), role="admin"),
        )

    view.on_row("change-account", put)
    view.on_row("drop-account", drop)
    with ui.element("div").classes("row"):
        ui.html(search_form(view), sanitize=False)
        ui.space()
        press_button(t("account.add"), lambda: put(None), "main", "account-put")
    await view.live(listed)


def _account_buttons(view: View, one: Account) -> Markup:
    t = view.t
    # Accounts of the provider get role and password there; nobody removes their own account.
    shown = (
        row_button(view, t("account.change_short"), "change-account", one.name)
        if one.issuer is None
        else None,
        row_button(view, t("account.drop_short"), "drop-account", one.name)
        if one.name != view.session.account
        else None,
    )
    return element("div", list(shown), class_="acts")
