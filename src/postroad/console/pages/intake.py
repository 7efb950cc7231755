"""The intake: servers, the pipeline as columns, running transfers, errors, files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from postroad.console.frame import add_page
from postroad.console.gate import PREFIX
from postroad.console.house import House
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    badge,
    card,
    element,
    facts,
    joined,
    link,
    moment,
    number,
    table,
)
from postroad.console.parts.dialogs import (
    action_button,
    buttons,
    confirm,
    form_dialog,
    press_button,
)
from postroad.console.parts.lists import crumbs, empty, filter_form, pager, tabs
from postroad.console.view import View
from postroad.intake import operations, status
from postroad.intake.credentials import Credentials
from postroad.intake.errors import FileNotFound, ServerNotFound
from postroad.intake.status import FILE_STATUSES

__all__ = ["add_intake_pages", "counts", "servers"]

PAGE_ROWS = 50
LANES = (
    ("discovered", ("discovered",)),
    ("downloading", ("downloading", "downloaded")),
    ("uploading_to_minio", ("uploading_to_minio", "uploaded_to_minio")),
    ("notifying", ("notifying",)),
    ("completed", ("completed",)),
    ("failed", ("failed",)),
)
LANE_ITEMS = 5


def add_intake_pages(house: House) -> None:
    """Register the pages."""
    add_page(house, "/intake", "intake", "nav.intake", _pipeline)
    add_page(house, "/intake/servers", "intake", "intake.servers", _servers)
    add_page(house, "/intake/servers/{server}", "intake", "intake.server_title", _server)
    add_page(house, "/intake/files", "intake", "intake.files", _files)
    add_page(house, "/intake/files/{file}", "intake", "intake.file_title", _file)


async def servers(view: View) -> Sequence[Mapping[str, Any]]:
    """Return all servers, shared by all pages."""
    return await view.look("intake.servers", lambda: view.house.doors.ask_blocking(status.servers))


async def counts(view: View) -> Mapping[str, int]:
    """Return how many files have each status, shared by all pages."""
    return await view.look("intake.counts", lambda: view.house.doors.ask_blocking(status.counts))


def _tabs(view: View, shown: str) -> Markup:
    t = view.t
    return tabs(
        t,
        [
            (t("intake.pipeline"), address("intake"), shown == "pipeline", None),
            (t("intake.servers"), address("intake", "servers"), shown == "servers", None),
            (t("intake.files"), address("intake", "files"), shown == "files", None),
        ],
    )


async def _pipeline(view: View) -> None:
    t, doors = view.t, view.house.doors

    async def lanes() -> Markup:
        counted = await counts(view)
        shown = []
        for name, statuses in LANES:
            files: list[Mapping[str, Any]] = []
            for each in statuses:
                files += await _latest(view, each)
            shown.append(_lane(view, name, sum(counted[each] for each in statuses), files))
        return element("div", shown, class_="pipeline", tabindex="0", role="region",
                       aria_label=t("intake.pipeline"))  # fmt: skip

    async def transfers() -> Markup:
        found = await view.look("intake.transfers", lambda: doors.ask_blocking(status.transfers), 1)
        return card(t("intake.transfers"), _transfer_table(view, found))

    async def stores() -> Markup:
        found = await view.look("intake.stores", lambda: doors.ask_blocking(status.stores), 5)
        wrong = [one for one in found if one["failures"]]
        return joined(
            element("p", f"{one['store']}: {one['problem']}", class_="danger", role="alert")
            for one in wrong
        )

    ui.html(_tabs(view, "pipeline"), sanitize=False)
    await view.live(stores)
    await view.live(lanes)
    await view.live(transfers)


async def _latest(view: View, state: str) -> Sequence[Mapping[str, Any]]:
    doors = view.house.doors
    return await view.look(
        ("intake.lane", state),
        lambda: doors.ask_blocking(status.files, status=state, limit=LANE_ITEMS),
    )


def _lane(view: View, name: str, count: int, files: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    items = [
        element(
            "div",
            link(one["filename"], address("intake", "files", one["id"])),
            element("div", one["server"], " · ", _size(one["filesize"]), class_="note"),
            element("div", one["error_message"], class_="note") if one["error_message"] else None,
            class_="item",
        )
        for one in files[:LANE_ITEMS]
    ]
    return element(
        "section",
        element("h3", t.state(name), element("span", number(count))),
        items,
        class_="lane",
    )


def _size(size: int | None) -> str:
    if size is None:
        return NOTHING
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def _transfer_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("intake.file")),
            Column(t("intake.server")),
            Column(t("common.state")),
            Column(t("coordination.progress"), "wide"),
            Column(t("intake.size"), "num"),
            Column(t("bus.attempts"), "num"),
        ],
        [
            (
                link(one["filename"], address("intake", "files", one["id"])),
                one["server"],
                badge(t.state(one["status"]), "running"),
                _bar(one["bytes_done"], one["filesize"]),
                _size(one["filesize"]),
                number(one["attempts"]),
            )
            for one in found
        ],
        label=t("intake.transfers"),
        empty=empty(t("intake.no_transfer")),
    )


def _bar(done: int | None, total: int | None) -> Markup:
    percent = min(100, 100 * (done or 0) // total) if total else 0
    inner = element("span", style=f"width:{percent}%")
    return element("div", inner, class_="bar", role="progressbar", aria_valuenow=percent,
                   aria_valuemin=0, aria_valuemax=100, aria_label=f"{percent} %")  # fmt: skip


async def _servers(view: View) -> None:
    t = view.t

    async def listed() -> Markup:
        return table(
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

    ui.html(_tabs(view, "servers"), sanitize=False)
    with ui.element("div").classes("row"):
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


async def _server(view: View) -> None:
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
        gone = element("div", empty(t("intake.server_gone")), class_="empty")
        ui.html(card(None, gone), sanitize=False)
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
            press_button(t("intake.pause"), act("pause", operations.pause_server), test="pause")
            press_button(t("intake.resume"), act("resume", operations.resume_server), test="resume")
            press_button(t("intake.trust"), act("trust", operations.trust_host_key), test="trust")
    await view.live(shown)


async def _files(view: View) -> None:
    t, doors = view.t, view.house.doors
    search, state = view.query("search"), view.query("status")
    server, before = view.query("server"), view.place("before")

    async def listed() -> Markup:
        found = await view.look(
            ("intake.files", search, state, server, before),
            lambda: doors.ask_blocking(
                status.files,
                status=state or None,
                server=server or None,
                name=search or None,
                before=before,
                limit=PAGE_ROWS + 1,
            ),
        )
        page = found[:PAGE_ROWS]
        kept = {"search": search, "status": state, "server": server}
        following = (
            address("intake", "files", **kept, before=page[-1]["id"])
            if len(found) > PAGE_ROWS
            else None
        )
        first = address("intake", "files", **kept) if before else None
        return joined((_file_table(view, page), pager(t, first, following)))

    names = {one["name"]: one["name"] for one in await servers(view)}
    ui.html(_tabs(view, "files"), sanitize=False)
    ui.html(
        filter_form(
            t,
            address("intake", "files"),
            search=search,
            hint=t("intake.file"),
            choices={
                "status": (
                    t("common.state"),
                    {"": t("common.all"), **{each: t.state(each) for each in FILE_STATUSES}},
                ),
                "server": (t("intake.server"), {"": t("common.all"), **names}),
            },
            chosen={"status": state, "server": server},
        ),
        sanitize=False,
    )
    await view.live(listed)


def _file_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("intake.file")),
            Column(t("intake.server")),
            Column(t("common.state")),
            Column(t("intake.size"), "num"),
            Column(t("bus.attempts"), "num"),
            Column(t("intake.found"), "nowrap"),
            Column(t("intake.completed_at"), "nowrap"),
            Column(t("bus.error")),
        ],
        [
            (
                link(one["filename"], address("intake", "files", one["id"])),
                one["server"],
                badge(t.state(one["status"]), one["status"]),
                _size(one["filesize"]),
                number(one["attempts"]),
                moment(one["created_at"]),
                moment(one["completed_at"]),
                one["error_message"] or NOTHING,
            )
            for one in found
        ],
        label=t("intake.files"),
        empty=empty(t("intake.no_file"), t("intake.no_file_advice")),
    )


async def _file(view: View) -> None:
    t, doors = view.t, view.house.doors
    text = view.path("file")
    file_id = int(text) if text.isdigit() else 0

    async def found() -> Mapping[str, Any] | None:
        try:
            return await doors.ask_blocking(status.file, file_id)
        except FileNotFound:
            return None

    first = await found()
    ui.html(
        crumbs(
            (t("nav.intake"), address("intake")),
            (t("intake.files"), address("intake", "files")),
            (first["filename"] if first else text, None),
        ),
        sanitize=False,
    )
    if first is None:
        gone = element("div", empty(t("intake.file_gone")), class_="empty")
        ui.html(card(None, gone), sanitize=False)
        return

    def act(verb: str, do: Callable[..., Any]) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            if await confirm(view, t(f"intake.{verb}"), t("intake.sure", file=first["filename"]),
                             is_danger=verb == "skip"):  # fmt: skip

                async def run() -> int:
                    return len(await doors.ask_blocking(do, [file_id]))

                await view.act(f"intake.{verb}", first["filename"], run)
                await view.refresh()

        return ask

    async def shown() -> Markup:
        one = await found() or first
        history = await doors.ask_blocking(status.history, file_id)
        steps = [
            element(
                "li",
                element("strong", t.state(step["status"])),
                " ",
                moment(step["at"]),
                element("div", step["note"], class_="note") if step["note"] else None,
                class_="bad" if step["status"] == "failed" else "good",
            )
            for step in history
        ]
        return element(
            "div",
            card(
                t("intake.file"),
                facts(
                    [
                        (t("common.state"), badge(t.state(one["status"]), one["status"])),
                        (t("intake.server"), one["server"]),
                        (t("intake.size"), _size(one["filesize"])),
                        (t("coordination.progress"), _bar(one["bytes_done"], one["filesize"])),
                        (t("intake.store"), one["store"] or NOTHING),
                        (
                            t("intake.object_key"),
                            element("span", one["object_key"] or NOTHING, class_="mono"),
                        ),
                        (
                            t("intake.hash"),
                            element("span", one["file_hash"] or NOTHING, class_="mono"),
                        ),
                        (t("bus.attempts"), number(one["attempts"])),
                        (t("bus.error"), one["error_message"] or NOTHING),
                        (t("intake.found"), moment(one["created_at"])),
                        (t("intake.completed_at"), moment(one["completed_at"])),
                    ]
                ),
            ),
            card(t("exchange.timeline"), element("ol", steps, class_="timeline")),
            class_="columns",
        )

    if view.may("operator"):
        with ui.element("div").classes("row"):
            press_button(t("intake.retry"), act("retry", operations.retry), test="retry-file")
            press_button(t("intake.skip"), act("skip", operations.skip), "danger", "skip-file")
            press_button(
                t("intake.reimport"), act("reimport", operations.reimport), test="reimport"
            )
    await view.live(shown)
