"""Pages of administrators: services, settings, accounts, audit."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

from nicegui import ui

from postroad.bus.resources import WORKERS
from postroad.console.accounts import ROLES
from postroad.console.errors import NameTaken
from postroad.console.frame import page
from postroad.console.markup import NOTHING, Markup, address, badge, card, element, joined, link
from postroad.console.parts.dialogs import ask, field, press_button, row_button
from postroad.console.parts.lists import gone
from postroad.console.parts.resources import show_resource
from postroad.console.passwords import check_password, new_password
from postroad.console.resources import ACCOUNTS, AUDIT, SERVICES, SESSIONS, SETTINGS
from postroad.console.view import View
from postroad.operate import Row, RowNotFound
from postroad.operate.resource import MAX_KEYS
from postroad.postgres.calls import call

MAX_LOG_BYTES = 64_000


@page("/workers", "workers", "nav.workers")
async def _workers(view: View) -> None:
    t = view.t

    async def forget(host: str) -> None:
        run = view.context.connections.run
        await view.act("service.forget", host, partial(run, call, "console.forget_services", host))

    async def restart(name: str) -> None:
        title, again = t("worker.restart"), view.context.components.restart

        async def submit(_: object) -> bool:

            async def do() -> None:
                if again is None or not again(name):
                    reason = f"{name} cannot be restarted here"
                    raise RowNotFound(reason, hint="restart its process")

            return await view.act("service.restart", name, do)

        question = t("common.sure", action=title, target=name)
        await ask(view, title, title, submit, note=question, tone="danger")

    def button(row: Row) -> Markup | str:
        if row["state"] == "lost":
            return row_button(view, t("worker.forget"), "forget", row["host"]) or ""
        if view.context.components.logs is None or row["host"] != socket.gethostname():
            return ""
        href = address("workers", row["name"], "log")
        log = link(t("worker.log"), href, class_="button plain small")
        again = row_button(view, t("worker.restart"), "restart", row["name"])
        return element("div", [log, again if row["name"] != "web" else None], class_="acts")

    view.on_row("forget", forget)
    view.on_row("restart", restart)
    title, advice = t("worker.services"), element("code", "postroad up")
    more = {"": button}
    await show_resource(view, SERVICES, advice=advice, more=more, title=title)
    title = t("worker.handlers")
    await show_resource(view, WORKERS, title=title, has_form=False, name="handler_")
    title = t("worker.sessions")
    await show_resource(view, SESSIONS, title=title, has_form=False, name="session_")


@page("/workers/{service}/log", "workers", "worker.log_title", role="operator")
async def _log(view: View) -> None:
    name, logs = view.path("service"), view.context.components.logs
    known = await view.rows(SERVICES)
    if logs is None or name not in {one["name"] for one in known}:
        ui.html(gone(view.t("worker.no_log")), sanitize=False)
        return

    async def shown() -> Markup:
        text = await asyncio.to_thread(_end_of, logs / f"{name}.log")
        return card(name, element("pre", text, class_="data", tabindex="0"))

    await view.live(shown)


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as failure:
        return str(failure.strerror)
    # The first line may be incomplete.
    return "\n".join(reversed(lines[1:] if size > MAX_LOG_BYTES else lines))


@page("/audit", "audit", "nav.audit", role="admin")
async def _audit(view: View) -> None:
    def who(row: Row) -> Markup:
        role = element("span", view.t(f"role.{row['role']}"), class_="note")
        return joined((row["account"], " ", role))

    await show_resource(view, AUDIT, cells={"detail": _detail, "account": who})


def _detail(row: Row) -> Markup | str:
    given = ", ".join(f"{name}={value}" for name, value in row["detail"].items())
    return (
        joined(element("div", one, class_="note") for one in (given, row["error"]) if one)
        or NOTHING
    )


@page("/settings", "settings", "nav.settings", role="admin")
async def _settings(view: View) -> None:
    t = view.t

    def source(row: Row) -> Markup:
        is_default = row["source"] == "default"
        return badge(t("setting.default")) if is_default else badge(row["source"], "new")

    await show_resource(view, SETTINGS, cells={"source": source}, limit=MAX_KEYS)


@page("/accounts", "accounts", "nav.accounts", role="admin")
async def _accounts(view: View) -> None:
    t, accounts = view.t, view.context.accounts

    async def put(existing: str | None) -> None:
        """Add an account, or change one; empty fields keep their values."""
        known = await accounts.roles()
        if existing is not None and existing not in known:
            view.notify(t("common.nothing_found"))
            return
        title = t("account.change", name=existing) if existing else t("account.add")
        roles = {each: t(f"role.{each}") for each in ROLES}
        role = known[existing] if existing else "viewer"
        label = t("account.new_password") if existing else t("account.password")
        props, value = 'autocomplete="off"', "" if existing else new_password()
        fields = {"name": field(t("account.name"))} if existing is None else {}
        fields["role"] = field(t("account.role"), ui.select, options=roles, value=role)
        fields["password"] = field(label, props=props, value=value)

        async def submit(given: dict[str, Any]) -> bool:
            name = existing or str(given["name"] or "")
            role, password = given["role"], str(given["password"] or "")
            is_new_role = existing is None or role != known[existing]

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

        await ask(view, title, t("common.save"), submit, fields=fields, test="account-save")

    async def drop(name: str) -> None:
        async def submit(_: object) -> bool:
            return await view.act("account.drop", name, lambda: accounts.drop(name), role="admin")

        title, question = t("account.drop"), t("account.drop_question", name=name)
        await ask(view, title, title, submit, note=question, tone="danger")

    view.on_row("change-account", put)
    view.on_row("drop-account", drop)
    with ui.element("div").classes("row"):
        press_button(t("account.add"), lambda: put(None), "main", "account-put")
    await show_resource(
        view,
        ACCOUNTS,
        cells={
            "role": lambda row: badge(t(f"role.{row['role']}")),
            "issuer": lambda row: row["issuer"] or t("account.local"),
        },
        more={"": partial(_account_buttons, view)},
    )


def _account_buttons(view: View, one: Row) -> Markup:
    t = view.t
    # The provider sets role and password of its accounts; no account can remove itself.
    shown = []
    if one["issuer"] is None:
        shown.append(row_button(view, t("account.change_short"), "change-account", one["name"]))
    if one["name"] != view.session.account:
        shown.append(row_button(view, t("account.drop_short"), "drop-account", one["name"]))
    return element("div", shown, class_="acts")
