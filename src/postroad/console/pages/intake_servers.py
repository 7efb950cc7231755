"""The servers of the intake: list, settings, actions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from nicegui import ui

from postroad.console.frame import page
from postroad.console.gate import PREFIX
from postroad.console.markup import Markup, address, badge, element, link, number
from postroad.console.parts.actions import action_buttons
from postroad.console.parts.dialogs import action_button, ask, field, press_button
from postroad.console.parts.resources import detail_facts, open_row, show_resource
from postroad.console.view import BAD, GOOD, View
from postroad.intake import operations
from postroad.intake.credentials import Credentials
from postroad.intake.resources import PAUSE, REMOVE, RENEW, RESUME, SERVERS, TRUST
from postroad.operate import Action


@page("/intake/servers", "intake", "intake.servers")
async def _servers(view: View) -> None:
    t = view.t

    with ui.element("div").classes("row"):
        action_button(
            view, t("intake.add"), lambda: _edit(view, None), test="add-server", is_main=True
        )
    await show_resource(
        view, SERVERS, to=("intake", "servers"), cells={"status": partial(_server_state, view)}
    )


def _server_state(view: View, one: Mapping[str, Any]) -> Markup:
    state = one["status"] if one["is_active"] else "paused"
    return badge(view.t.state(state), "failed" if one["problem"] else state)


async def _edit(view: View, existing: Mapping[str, Any] | None) -> None:
    """Add a server, or change one; empty credentials keep the stored ones."""
    t = view.t
    title = t("intake.change") if existing else t("intake.add")
    labels = {"name": "", "host": "", "port": "22", "username": "", "directory": "/"}
    known: Mapping[str, Any] = existing or {"host_key": "", "trusts_first_key": False, **labels}
    is_trusting, props = bool(known["trusts_first_key"]), 'autocomplete="new-password"'
    fields = {name: field(t(f"intake.{name}"), value=str(known[name])) for name in labels}
    fields |= {
        "host_key": field(t("intake.host_key"), value=known["host_key"]),
        "trusts_first_key": field(t("intake.trusts_first_key"), ui.checkbox, value=is_trusting),
        "password": field(t("intake.password"), props=props, password=True),
        "key": field(t("intake.private_key"), ui.textarea),
    }
    note = t("intake.keep_credentials") if existing else ""

    async def submit(given: dict[str, Any]) -> bool:
        values: dict[str, Any] = {name: str(given[name]).strip() for name in labels}
        if not values["port"].isdigit() or not 0 < int(values["port"]) < 65536:
            view.notify(t("intake.port_invalid"), BAD)
            return False
        values["port"] = int(values["port"])
        values["host_key"] = str(given["host_key"] or "").strip() or None
        values["trusts_first_key"] = bool(given["trusts_first_key"])
        password, key = (str(given[name] or "") or None for name in ("password", "key"))
        if existing:
            values = {name: value for name, value in values.items() if value != existing[name]}
        vault, saved = view.context.components.vault, ""

        async def save() -> str:
            nonlocal saved
            run = view.context.connections.run
            secrets = partial(Credentials, password=password, private_key=key)
            if existing:
                changed = secrets() if password or key else None
                name = existing["name"]
                made = await run(operations.change_server, vault, name, values, changed)
            else:
                made = await run(operations.create_server, vault, secrets(), values)
            saved = str(made["name"])
            return saved

        verb, target = (
            ("intake.change_server", existing["name"])
            if existing
            else ("intake.add_server", values["host"])
        )
        detail = {**values, "credentials": "new" if password or key else "unchanged"}
        is_done = await view.act(verb, str(target), save, detail=detail)
        if is_done and (existing is None or saved != existing["name"]):
            # NiceGUI adds its own prefix to the URL.
            ui.navigate.to(address("intake", "servers", saved).removeprefix(PREFIX))
        return is_done

    await ask(view, title, t("common.save"), submit, note=note, fields=fields, test="server-save")


@page("/intake/servers/{server}", "intake", "intake.server_title")
async def _server(view: View) -> None:
    t, name = view.t, view.path("server")
    now = await open_row(view, SERVERS, name)
    first = await now()

    async def edit() -> None:
        await _edit(view, await now())

    async def test() -> None:
        try_server = view.context.components.try_server

        def describe(answer: dict[str, Any]) -> tuple[str, str]:
            if answer["works"]:
                return t("intake.works"), GOOD
            return f"{answer['problem']} {answer['hint'] or ''}".strip(), BAD

        await view.act(
            "intake.test", first["name"], lambda: try_server(int(first["id"])), describe=describe
        )

    def leave(action: Action) -> None:
        if action is REMOVE:
            ui.navigate.to(address("intake", "servers").removeprefix(PREFIX))

    async def shown() -> Markup:
        row = await now()
        return detail_facts(
            view, SERVERS, row, t("intake.server"), {"status": partial(_server_state, view)}
        )

    if view.may("operator"):
        with ui.element("div").classes("row"):
            press_button(t("intake.test"), test, "main", "test-server")
            press_button(t("intake.change"), edit, test="change-server")
    await action_buttons(view, [PAUSE, RESUME, TRUST, RENEW], now)
    question = t("intake.delete_question", server=first["name"], files=number(first["completed"]))
    await action_buttons(view, [REMOVE], now, question, then=leave)
    files = link(t("intake.files"), address("intake", "files", server=first["name"]))
    ui.html(element("p", files), sanitize=False)
    await view.live(shown)
