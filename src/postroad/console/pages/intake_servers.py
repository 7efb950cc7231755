"""The servers of the intake: added, changed, tested, paused, deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from postroad.console.gate import PREFIX
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    card,
    element,
    facts,
    link,
    moment,
    number,
)
from postroad.console.pages.intake_parts import intake_tabs, servers
from postroad.console.parts.dialogs import action_button, ask, confirm, press_button
from postroad.console.parts.listing import say_gone
from postroad.console.parts.lists import crumbs, empty
from postroad.console.parts.sorting import search_form, sortable
from postroad.console.view import BAD, GOOD, View
from postroad.intake import operations, status
from postroad.intake.credentials import Credentials
from postroad.intake.errors import ServerNotFound


async def servers_page(view: View) -> None:
    """List the servers."""
    t = view.t

    async def listed() -> Markup:
        return sortable(
            view,
            "servers",
            [
                Column(t("intake.server")),
                Column(t("common.state")),
                Column(t("intake.where")),
                Column(t("intake.waiting"), "num"),
                Column(t("intake.moving"), "num"),
                Column(t("state.completed"), "num"),
                Column(t("state.failed"), "num"),
                Column(t("intake.last_scan"), "nowrap"),
                Column(t("intake.problem")),
            ],
            [
                (
                    link(one["name"], address("intake", "servers", one["name"])),
                    _server_state(view, one),
                    f"{one['username']}@{one['host']}:{one['port']}{one['directory']}",
                    number(one["waiting"]),
                    number(one["moving"]),
                    number(one["completed"]),
                    badge(number(one["failed"]), "failed") if one["failed"] else "0",
                    moment(one["last_scan_at"]),
                    one["problem"] or NOTHING,
                )
                for one in await servers(view)
            ],
            label=t("intake.servers"),
            empty=empty(t("intake.no_server"), t("intake.no_server_advice")),
        )

    ui.html(intake_tabs(view, "servers"), sanitize=False)
    with ui.element("div").classes("row"):
        if await servers(view):
            ui.html(search_form(view), sanitize=False)
        ui.space()
        action_button(
            view, t("intake.add"), lambda: _edit(view, None), test="add-server", is_main=True
        )
    await view.live(listed)


def _server_state(view: View, one: Mapping[str, Any]) -> Markup:
    state = one["status"] if one["is_active"] else "paused"
    return badge(view.t.state(state), "failed" if one["problem"] else state)


async def _edit(view: View, existing: Mapping[str, Any] | None) -> None:
    """Add a server, or change one; empty credentials keep the stored ones."""
    t = view.t
    title = t("intake.change") if existing else t("intake.add")
    labels = {"name": "", "host": "", "port": "22", "username": "", "directory": "/"}
    fields: dict[str, Any] = {}

    def fill() -> None:
        for name, default in labels.items():
            value = str(existing[name]) if existing else default
            fields[name] = ui.input(t(f"intake.{name}"), value=value).props(
                f'outlined dense data-test="server-{name}"'
            )
        fields["host_key"] = ui.input(
            t("intake.host_key"), value=existing["host_key"] if existing else ""
        ).props('outlined dense data-test="server-host-key"')
        fields["trusts_first_key"] = ui.checkbox(
            t("intake.trusts_first_key"),
            value=bool(existing["trusts_first_key"]) if existing else False,
        ).props('data-test="server-trusts-first-key"')
        if existing:
            ui.label(t("intake.keep_credentials")).classes("note")
        fields["password"] = ui.input(t("intake.password"), password=True).props(
            'outlined dense autocomplete="new-password" data-test="server-password"'
        )
        fields["key"] = ui.textarea(t("intake.private_key")).props("outlined dense")

    async def submit() -> bool:
        values: dict[str, Any] = {name: str(fields[name].value).strip() for name in labels}
        if not values["port"].isdigit() or not 0 < int(values["port"]) < 65536:
            view.notify(t("intake.port_invalid"), BAD)
            return False
        values["port"] = int(values["port"])
        values["host_key"] = str(fields["host_key"].value or "").strip() or None
        values["trusts_first_key"] = bool(fields["trusts_first_key"].value)
        password, key = (str(fields[name].value or "") or None for name in ("password", "key"))
        if existing:
            values = {name: value for name, value in values.items() if value != existing[name]}
        vault, saved = view.context.components.vault, ""

        async def save() -> str:
            nonlocal saved
            connections = view.context.connections
            if existing:
                given = Credentials(password=password, private_key=key) if password or key else None
                made = await connections.run_blocking(
                    operations.change_server, vault, existing["id"], values, given
                )
            else:
                made = await connections.run_blocking(
                    operations.create_server,
                    vault,
                    Credentials(password=password, private_key=key),
                    values,
                )
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
            # NiceGUI puts its own prefix before the address.
            ui.navigate.to(address("intake", "servers", saved).removeprefix(PREFIX))
        return is_done

    await ask(view, title, t("common.save"), submit, fill=fill, test="server-save")


async def server_page(view: View) -> None:
    """Show one server and what can be done with it."""
    t, connections, name = view.t, view.context.connections, view.path("server")

    async def found() -> Mapping[str, Any] | None:
        try:
            return await connections.run_blocking(status.server, name)
        except ServerNotFound:
            return None

    first = await found()
    ui.html(
        crumbs(
            (t("nav.intake"), address("intake")),
            (t("intake.servers"), address("intake", "servers")),
            (name, None),
        ),
        sanitize=False,
    )
    if first is None:
        say_gone(t("intake.server_gone"))
        return

    def act(verb: str, do: Callable[..., Any]) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            async def run() -> str:
                await connections.run_blocking(do, name)
                return verb

            await view.act(f"intake.{verb}", name, run)

        return ask

    async def edit() -> None:
        await _edit(view, await found() or first)

    async def delete() -> None:
        async def run() -> str:
            await connections.run_blocking(operations.delete_server, name)
            ui.navigate.to(address("intake", "servers").removeprefix(PREFIX))
            return name

        await confirm(
            view,
            t("intake.delete"),
            t("intake.delete_question", server=name, files=number(first["completed"])),
            lambda: view.act("intake.delete_server", name, run),
        )

    async def test() -> None:
        try_server = view.context.components.try_server
        if try_server is None:
            return

        async def run() -> dict[str, Any]:
            return await try_server(int(first["id"]))

        def describe(answer: dict[str, Any]) -> tuple[str, str]:
            if answer["works"]:
                return t("intake.works"), GOOD
            return f"{answer['problem']} {answer['hint'] or ''}".strip(), BAD

        await view.act("intake.test", name, run, describe=describe)

    async def is_active(*, wanted: bool) -> bool:
        return bool((await found() or first)["is_active"]) is wanted

    async def shown() -> Markup:
        one = await found() or first
        return element(
            "div",
            card(
                t("intake.server"),
                facts(
                    [
                        (t("common.state"), _server_state(view, one)),
                        (t("intake.problem"), one["problem"] or NOTHING),
                        (t("intake.where"), f"{one['host']}:{one['port']}{one['directory']}"),
                        (t("intake.username"), one["username"]),
                        (
                            t("intake.host_key"),
                            element("span", one["host_key"] or NOTHING, class_="mono"),
                        ),
                        (t("intake.last_scan"), moment(one["last_scan_at"])),
                        (t("intake.next_scan"), moment(one["next_scan_at"])),
                    ]
                ),
            ),
            card(
                t("intake.files"),
                facts(
                    [
                        (t("intake.waiting"), number(one["waiting"])),
                        (t("intake.moving"), number(one["moving"])),
                        (t("state.completed"), number(one["completed"])),
                        (t("state.failed"), number(one["failed"])),
                        (t("intake.include"), ", ".join(one["include"])),
                        (t("intake.ignore"), ", ".join(one["ignore"])),
                    ]
                ),
                element("p", link(t("intake.files"), address("intake", "files", server=name))),
            ),
            class_="columns",
        )

    if view.may("operator"):
        with ui.element("div").classes("row"):
            press_button(t("intake.test"), test, "main", "test-server")
            pause = press_button(
                t("intake.pause"), act("pause", operations.pause_server), test="pause"
            )
            resume = press_button(
                t("intake.resume"), act("resume", operations.resume_server), test="resume"
            )
            await view.offer(pause, lambda: is_active(wanted=True))
            await view.offer(resume, lambda: is_active(wanted=False))
            press_button(t("intake.trust"), act("trust", operations.trust_host_key), test="trust")
            press_button(t("intake.change"), edit, test="change-server")
            press_button(t("intake.delete"), delete, "danger", "delete-server")
    await view.live(shown)
