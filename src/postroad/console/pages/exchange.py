"""The exchange: databases and their mailboxes, processes on their state diagram, message files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nicegui import ui

from postroad.console.frame import add_page
from postroad.console.house import House
from postroad.console.markup import (
    NOTHING,
    Column,
    Markup,
    address,
    age,
    badge,
    card,
    element,
    facts,
    joined,
    link,
    moment,
    number,
    pretty,
    table,
)
from postroad.console.pages.graphs import live_graph
from postroad.console.parts.dialogs import action_button, confirm
from postroad.console.parts.lists import crumbs, empty, figures, filter_form, pager, tabs
from postroad.console.view import View
from postroad.exchange import operations, status
from postroad.exchange.files import Storage

__all__ = ["add_exchange_pages", "databases"]

PAGE_ROWS = 50
FILE_BYTES_MOST = 100_000
STATES = ("open", "UNKNOWN", "STARTED", "READY_TO_COMMIT", "CLEANUP", "DONE", "ABORTED", "FAILED")
MESSAGE_STATES = ("queued", "leased", "deferred", "parked", "waiting", "done")
ENDED = {"DONE", "ABORTED", "CANCELLED"}
_ARROWS = (
    ("STARTED", "READY_TO_COMMIT"),
    ("READY_TO_COMMIT", "CLEANUP"),
    ("CLEANUP", "DONE"),
    ("STARTED", "ABORTED"),
    ("STARTED", "CANCELLED"),
    ("READY_TO_COMMIT", "UNKNOWN"),
    ("UNKNOWN", "CLEANUP"),
    ("UNKNOWN", "ABORTED"),
    ("CLEANUP", "FAILED"),
    ("FAILED", "CLEANUP"),
)


def add_exchange_pages(house: House) -> None:
    """Register the pages."""
    add_page(house, "/exchange", "exchange", "nav.exchange", _overview)
    add_page(house, "/exchange/processes/{process}", "exchange", "exchange.process_title", _process)
    add_page(house, "/exchange/messages", "exchange", "exchange.messages", _messages)
    add_page(house, "/exchange/messages/{number}", "exchange", "exchange.message_title", _message)


async def databases(view: View) -> Sequence[Mapping[str, Any]]:
    """Return the databases and what lies in them, shared by all pages."""
    doors = view.house.doors
    return await view.look("exchange.databases", lambda: doors.ask_blocking(status.databases))


def _tabs(view: View, shown: str) -> Markup:
    t = view.t
    return tabs(
        t,
        [
            (t("exchange.processes"), address("exchange"), shown == "processes", None),
            (t("exchange.messages"), address("exchange", "messages"), shown == "messages", None),
        ],
    )


async def _overview(view: View) -> None:
    t, doors = view.t, view.house.doors
    state, database = view.query("state"), view.query("database")
    before = view.place("before")

    async def head() -> Markup:
        return _databases(view, await databases(view))

    async def doubts() -> Markup:
        found = await view.look(
            "exchange.doubts",
            lambda: doors.ask_blocking(status.processes, state="UNKNOWN", limit=20),
        )
        if not found:
            return Markup("")
        note = element("p", t("exchange.in_doubt_note"), class_="note")
        return card(t("exchange.in_doubt"), note, _process_table(view, found), class_="urgent")

    async def listed() -> Markup:
        found = await view.look(
            ("exchange.processes", state, database, before),
            lambda: doors.ask_blocking(
                status.processes,
                database=database or None,
                state=state or None,
                before=before,
                limit=PAGE_ROWS + 1,
            ),
        )
        page = found[:PAGE_ROWS]
        kept = {"state": state, "database": database}
        following = (
            address("exchange", **kept, before=page[-1]["number"])
            if len(found) > PAGE_ROWS
            else None
        )
        first = address("exchange", **kept) if before else None
        return joined((_process_table(view, page), pager(t, first, following)))

    ui.html(_tabs(view, "processes"), sanitize=False)
    await view.live(head)
    await view.live(doubts)
    names = {one["id"]: one["id"] for one in await databases(view)}
    ui.html(
        filter_form(
            t,
            address("exchange"),
            choices={
                "database": (t("exchange.database"), {"": t("common.all"), **names}),
                "state": (
                    t("common.state"),
                    {"": t("common.all"), **{each: t.state(each.lower()) for each in STATES}},
                ),
            },
            chosen={"database": database, "state": state},
        ),
        sanitize=False,
    )
    await view.live(listed)


def _databases(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    restored = [
        element(
            "p",
            t("exchange.restored", database=one["id"]),
            " ",
            element("code", f"postroad exchange replay {one['id']}"),
            class_="warning",
            role="alert",
        )
        for one in found
        if one["restored_at"]
    ]
    shown = table(
        [
            Column(t("exchange.database")),
            Column(t("exchange.queued"), "num"),
            Column(t("exchange.leased"), "num"),
            Column(t("exchange.deferred"), "num"),
            Column(t("exchange.parked"), "num"),
            Column(t("exchange.replies"), "num"),
            Column(t("exchange.in_doubt"), "num"),
            Column(t("exchange.process")),
            Column(t("bus.oldest"), "num"),
        ],
        [
            (
                link(one["id"], address("exchange", database=one["id"])),
                number(one["queued"]),
                number(one["leased"]),
                number(one["deferred"]),
                _alarming(number(one["parked"]), one["parked"]),
                number(one["replies"]),
                _alarming(number(one["in_doubt"]), one["in_doubt"]),
                _process_link(view, one["process"], one["process_state"]),
                age(datetime.now(one["oldest_at"].tzinfo) - one["oldest_at"])
                if one["oldest_at"]
                else NOTHING,
            )
            for one in found
        ],
        label=t("exchange.databases"),
        empty=empty(t("exchange.no_database"), t("exchange.no_database_advice")),
    )
    totals = figures(
        [
            (t("exchange.databases"), number(len(found)), ""),
            (t("exchange.queued"), number(sum(one["queued"] for one in found)), ""),
            (t("exchange.leased"), number(sum(one["leased"] for one in found)), ""),
            (
                t("exchange.in_doubt"),
                number(doubts := sum(one["in_doubt"] for one in found)),
                "bad" if doubts else "good",
            ),
        ]
    )
    return joined((totals, element("div", style="height:16px"), *restored, shown))


def _alarming(text: str, count: int) -> Markup | str:
    return badge(text, "bad") if count else text


def _process_link(view: View, process: str | None, state: str | None) -> Markup | str:
    if process is None or state is None:
        return NOTHING
    word = badge(view.t.state(state.lower()), state.lower())
    return link(word, address("exchange", "processes", process))


def _process_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("exchange.process"), "nowrap"),
            Column(t("exchange.database")),
            Column(t("exchange.owner")),
            Column(t("common.state")),
            Column(t("exchange.files"), "num"),
            Column(t("exchange.replies"), "num"),
            Column(t("exchange.started"), "nowrap"),
            Column(t("exchange.ended"), "nowrap"),
            Column(t("bus.error")),
        ],
        [
            (
                link(
                    str(one["id"])[:13], address("exchange", "processes", one["id"]), class_="mono"
                ),
                one["database"],
                one["owner"],
                badge(t.state(one["state"].lower()), one["state"].lower()),
                number(one["files"]),
                number(one["replies"]),
                moment(one["started_at"]),
                moment(one["ended_at"]),
                one["error"] or NOTHING,
            )
            for one in found
        ],
        label=t("exchange.processes"),
        empty=empty(t("exchange.no_process"), t("exchange.no_process_advice")),
    )


def _diagram(view: View, state: str, passed: Sequence[str]) -> str:
    """Draw the states with the way that this process took."""
    t = view.t
    lines = ["flowchart LR"]
    names = dict.fromkeys(name for arrow in _ARROWS for name in arrow)
    lines += [f'  {name}(["{t.state(name.lower())}"])' for name in names]
    lines += [f"  {source} --> {target}" for source, target in _ARROWS]
    for name in names:
        if name == state:
            tone = "bad" if name in ("UNKNOWN", "FAILED") else "now"
            lines.append(f"  class {name} {tone}")
        elif name in passed:
            lines.append(f"  class {name} passed")
    lines += [
        "  classDef now fill:#0b7285,stroke:#0b7285,color:#ffffff",
        "  classDef bad fill:#c92a2a,stroke:#c92a2a,color:#ffffff",
        "  classDef passed fill:#d3f9d8,stroke:#2b8a3e,color:#17212b",
    ]
    return "\n".join(lines)


async def _process(view: View) -> None:
    t, doors = view.t, view.house.doors
    process = view.path("process")

    async def found() -> dict[str, Any] | None:
        return await view.look(
            ("exchange.process", process), lambda: doors.ask_blocking(status.process, process), 1
        )

    first = await found()
    ui.html(crumbs((t("nav.exchange"), address("exchange")), (process, None)), sanitize=False)
    if first is None:
        gone = element("div", empty(t("exchange.process_gone")), class_="empty")
        ui.html(card(None, gone), sanitize=False)
        return

    async def again() -> dict[str, Any]:
        return await found() or first

    async def head() -> Markup:
        one = await again()
        return joined((_facts(view, one), _timeline(view, one["history"])))

    async def files() -> Markup:
        return card(t("exchange.files"), _file_table(view, (await again())["files"]))

    if first["state"] not in ENDED:
        with ui.element("div").classes("row"):
            _end_buttons(view, process)
    with ui.element("section").classes("card"):
        graph = live_graph(_diagram(view, first["state"], _passed(first)), t("exchange.diagram"))

        async def redraw() -> None:
            one = await again()
            text = _diagram(view, one["state"], _passed(one))
            if text != graph.content:
                graph.set_content(text)

        view.on_refresh(redraw)
    await view.live(head, class_="columns")
    await view.live(files)


def _passed(process: Mapping[str, Any]) -> list[str]:
    return [step["state"] for step in process["history"]]


def _facts(view: View, one: Mapping[str, Any]) -> Markup:
    t = view.t
    return card(
        t("exchange.process"),
        facts(
            [
                (t("exchange.database"), one["database"]),
                (t("exchange.owner"), one["owner"]),
                (t("common.state"), badge(t.state(one["state"].lower()), one["state"].lower())),
                (t("exchange.outcome"), one["outcome"] or NOTHING),
                (t("exchange.started"), _at(one["started_at"])),
                (t("exchange.ready"), _at(one["ready_at"])),
                (t("exchange.ended"), _at(one["ended_at"])),
                (t("bus.error"), one["error"] or NOTHING),
            ]
        ),
    )


def _at(text: str | None) -> Markup | str:
    return moment(datetime.fromisoformat(text)) if text else NOTHING


def _timeline(view: View, history: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    tones = {"UNKNOWN": "bad", "FAILED": "bad", "ABORTED": "wait", "CANCELLED": "wait"}
    lines = [
        element(
            "li",
            element("strong", t.state(step["state"].lower())),
            " ",
            _at(step["at"]),
            element(
                "div",
                " · ".join(filter(None, (step["actor"], step["note"]))),
                class_="note",
            ),
            class_=tones.get(step["state"], "good"),
        )
        for step in history
    ]
    return card(t("exchange.timeline"), element("ol", lines, class_="timeline"))


def _file_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("exchange.file")),
            Column(t("exchange.sender")),
            Column(t("exchange.folder")),
            Column(t("exchange.size"), "num"),
            Column(t("exchange.result")),
        ],
        [
            (
                link(one["name"], address("exchange", "messages", one["number"]), class_="mono"),
                one["sender"],
                one["folder"],
                number(one["size"]),
                one["error"] or one["result"] or NOTHING,
            )
            for one in found
        ],
        label=t("exchange.files"),
        empty=empty(t("exchange.no_file")),
    )


def _end_buttons(view: View, process: str) -> None:
    """Offer to settle a process by hand: committed, aborted, or released as it is."""
    t, doors = view.t, view.house.doors

    def settle(outcome: str) -> Any:
        async def ask() -> None:
            question = t("exchange.resolve_question", process=process, outcome=outcome)
            if not await confirm(view, t("exchange.resolve"), question):
                return

            async def act() -> str:
                answer = await doors.ask_blocking(operations.resolve, process, outcome)
                return str(answer["status"])

            await view.act("exchange.resolve", process, act, detail={"outcome": outcome})
            await _changed(view, process)

        return ask

    async def let_go() -> None:
        if await confirm(view, t("exchange.release"), t("exchange.release_question")):

            async def act() -> str:
                return str((await doors.ask_blocking(operations.release, process))["status"])

            await view.act("exchange.release", process, act)
            await _changed(view, process)

    action_button(view, t("exchange.it_committed"), settle("COMMITTED"), test="resolve-committed")
    action_button(view, t("exchange.it_aborted"), settle("ABORTED"), test="resolve-aborted")
    action_button(view, t("exchange.release"), let_go, test="release", is_danger=True)


async def _changed(view: View, process: str) -> None:
    for key in (("exchange.process", process), "exchange.doubts", "exchange.databases"):
        view.house.looks.forget(key)
    await view.refresh()


async def _messages(view: View) -> None:
    t, doors = view.t, view.house.doors
    state, database, before = view.query("state"), view.query("database"), view.place("before")
    sender = view.query("search")

    async def listed() -> Markup:
        found = await view.look(
            ("exchange.messages", state, database, sender, before),
            lambda: doors.ask_blocking(
                status.messages,
                database=database or None,
                state=state or None,
                sender=sender or None,
                before=before,
                limit=PAGE_ROWS + 1,
            ),
        )
        page = found[:PAGE_ROWS]
        kept = {"state": state, "database": database, "search": sender}
        following = (
            address("exchange", "messages", **kept, before=page[-1]["number"])
            if len(found) > PAGE_ROWS
            else None
        )
        first = address("exchange", "messages", **kept) if before else None
        return joined((_message_table(view, page), pager(t, first, following)))

    names = {one["id"]: one["id"] for one in await databases(view)}
    ui.html(_tabs(view, "messages"), sanitize=False)
    ui.html(
        filter_form(
            t,
            address("exchange", "messages"),
            search=sender,
            hint=t("exchange.sender"),
            choices={
                "database": (t("exchange.database"), {"": t("common.all"), **names}),
                "state": (
                    t("common.state"),
                    {"": t("common.all"), **{each: t.state(each) for each in MESSAGE_STATES}},
                ),
            },
            chosen={"database": database, "state": state},
        ),
        sanitize=False,
    )
    await view.live(listed)


def _message_table(view: View, found: Sequence[Mapping[str, Any]]) -> Markup:
    t = view.t
    return table(
        [
            Column(t("exchange.message"), "nowrap"),
            Column(t("exchange.database")),
            Column(t("exchange.sender")),
            Column(t("exchange.recipient")),
            Column(t("common.state")),
            Column(t("exchange.size"), "num"),
            Column(t("common.created"), "nowrap"),
            Column(t("bus.error")),
        ],
        [
            (
                link(
                    str(one["id"])[:24],
                    address("exchange", "messages", one["number"]),
                    class_="mono",
                ),
                one["database"],
                one["sender"],
                one["recipient"] or NOTHING,
                badge(t.state(one["state"]), one["state"]),
                number(one["size"]),
                moment(one["created_at"]),
                one["error"] or NOTHING,
            )
            for one in found
        ],
        label=t("exchange.messages"),
        empty=empty(t("exchange.no_message"), t("exchange.no_database_advice")),
    )


async def _message(view: View) -> None:
    t, doors = view.t, view.house.doors
    text = view.path("number")
    place = int(text) + 1 if text.isdigit() else 0

    async def found() -> dict[str, Any] | None:
        rows = await doors.ask_blocking(status.messages, before=place, limit=1)
        return rows[0] if rows and rows[0]["number"] == place - 1 else None

    one = await found()
    ui.html(
        crumbs(
            (t("nav.exchange"), address("exchange")),
            (t("exchange.messages"), address("exchange", "messages")),
            (str(one["id"]) if one else text, None),
        ),
        sanitize=False,
    )
    if one is None:
        gone = element("div", empty(t("exchange.message_gone")), class_="empty")
        ui.html(card(None, gone), sanitize=False)
        return

    async def requeue() -> None:
        if await confirm(view, t("exchange.requeue"), t("exchange.requeue_question")):

            async def act() -> str:
                answer = await doors.ask_blocking(
                    operations.requeue, one["id"], sender=one["sender"], database=one["database"]
                )
                return str(answer["status"])

            await view.act("exchange.requeue", str(one["id"]), act)
            await view.refresh()

    async def shown() -> Markup:
        now = await found() or one
        return element(
            "div",
            card(
                t("exchange.message"),
                facts(
                    [
                        (t("common.state"), badge(t.state(now["state"]), now["state"])),
                        (t("exchange.database"), now["database"]),
                        (t("exchange.sender"), now["sender"]),
                        (t("exchange.recipient"), now["recipient"] or NOTHING),
                        (t("exchange.folder"), now["folder"]),
                        (t("exchange.file"), element("span", now["file_name"], class_="mono")),
                        (t("exchange.size"), number(now["size"])),
                        (t("exchange.process"), _process_link(view, now["process"], "open")),
                        (t("common.created"), moment(now["created_at"])),
                        (t("bus.error"), now["error"] or NOTHING),
                    ]
                ),
            ),
            card(
                t("exchange.content"),
                element("pre", await _content(view, now), class_="data", tabindex="0"),
            ),
            class_="columns",
        )

    if one["state"] in ("parked", "deferred"):
        with ui.element("div").classes("row"):
            action_button(view, t("exchange.requeue"), requeue, test="requeue")
    await view.live(shown)


async def _content(view: View, one: Mapping[str, Any]) -> str:
    """Read the file where it lies; it may move while we look."""
    root = view.house.rooms.exchange_root
    if root is None or not one["file_name"]:
        return view.t("exchange.no_file")

    def read(_: object) -> str:
        content = Storage(root).read(
            one["database"], one["folder"], one["file_name"], FILE_BYTES_MOST
        )
        return pretty(content.decode(errors="replace"))

    try:
        return await view.house.doors.ask_blocking(read)
    except Exception:  # noqa: BLE001 - whatever is wrong with the file, the page is about its row
        return view.t("exchange.no_file")
