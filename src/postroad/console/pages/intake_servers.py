"""The servers of the intake: added, tried, paused."""

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
from postroad.console.parts.dialogs import (
    action_button,
    buttons,
    form_dialog,
    press_button,
)
from postroad.console.parts.listing import say_gone
from postroad.console.parts.lists import crumbs, empty
from postroad.console.parts.sorting import search_form, sortable
from postroad.console.view import View
from postroad.intake import operations, status
from postroad.intake.credentials import Credentials
from postroad.intake.errors import ServerNotFound

__all__ = ["server_page", "servers_page"]


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
        action_button(view, t("intake.add"), lambda: _add(view), test="add-server", is_main=True)
    await view.live(listed)


def _server_state(view: View, one: Mapping[str, Any]) -> Markup:
    state = one["status"] if one["is_active"] else "paused"
    return badge(view.t.state(state), "failed" if one["problem"] else state)


async def _add(view: View) -> None:
    t = view.t
    with form_dialog(t("intake.add")) as dialog, ui.card().classes("dialog"):
        ui.html(element("h2", t("intake.add")), sanitize=False)
        labels = {
            "name": (t("intake.name"), ""),
            "host": (t("intake.host"), ""),
            "port": (t("intake.port"), "22"),
            "username": (t("intake.username"), ""),
            "directory": (t("intake.directory"), "/"),
        }
        fields = {
            name: ui.input(label, value=value).props(f'outlined dense data-test="server-{name}"')
            for name, (label, value) in labels.items()
        }
        password = ui.input(t("intake.password"), password=True)
        password.props('outlined dense autocomplete="new-password" data-test="server-password"')
        key = ui.textarea(t("intake.private_key")).props("outlined dense")
        buttons(view, dialog, t("common.save"), test="server-save")
    dialog.open()
    if await dialog:
        values: dict[str, Any] = {name: str(each.value).strip() for name, each in fields.items()}
        values["port"] = int(values["port"]) if values["port"].isdigit() else 22

        async def create() -> str:
            credentials = Credentials(
                password=str(password.value or "") or None, private_key=str(key.value or "") or None
            )
            made = await view.house.doors.ask_blocking(
                operations.create_server, view.house.rooms.vault, credentials, values
            )
            return str(made["name"])

        shown = {name: value for name, value in values.items() if name != "password"}
        name = await view.act("intake.add_server", values["host"], create, detail=shown)
        if name is not None:
            view.house.looks.forget("intake.servers")
            # NiceGUI puts its own prefix before the address.
            ui.navigate.to(address("intake", "servers", name).removeprefix(PREFIX))
    dialog.delete()


async def server_page(view: View) -> None:
    """Show one server and what can be done with it."""
    t, doors, name = view.t, view.house.doors, view.path("server")

    async def found() -> Mapping[str, Any] | None:
        try:
            return await doors.ask_blocking(status.server, name)
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
                await doors.ask_blocking(do, name)
                return verb

            await view.act(f"intake.{verb}", name, run)
            view.house.looks.forget("intake.servers")
            await view.refresh()

        return ask

    async def test() -> None:
        try_server = view.house.rooms.try_server
        if try_server is None:
            return

        async def run() -> dict[str, Any]:
            return await try_server(int(first["id"]))

        answer = await view.act("intake.test", name, run)
        if answer is not None:
            works = bool(answer["works"])
            text = t("intake.works") if works else f"{answer['problem']} {answer['hint'] or ''}"
            view.tell(text, "positive" if works else "negative")
            await view.refresh()

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
            # Both are there, as the state may change while one looks; one of them is shown.
            pause = press_button(
                t("intake.pause"), act("pause", operations.pause_server), test="pause"
            )
            resume = press_button(
                t("intake.resume"), act("resume", operations.resume_server), test="resume"
            )

            async def offer() -> None:
                one = await found() or first
                pause.set_visibility(bool(one["is_active"]))
                resume.set_visibility(not one["is_active"])

            await offer()
            view.on_refresh(offer)
            press_button(t("intake.trust"), act("trust", operations.trust_host_key), test="trust")
    await view.live(shown)
