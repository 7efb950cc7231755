"""Messages: listed by page without taking them, one in full, dead ones by reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from nicegui import app, ui
from starlette.responses import PlainTextResponse, Response

from postroad.bus import BusError, browse
from postroad.bus import resources as bus
from postroad.bus.browse import STATES, State
from postroad.console.context import Context
from postroad.console.frame import page
from postroad.console.markup import (
    NOTHING,
    Markup,
    address,
    badge,
    card,
    count_of,
    element,
    facts,
    joined,
    link,
    moment,
    number,
    pretty,
)
from postroad.console.pages.bus import COUNTED
from postroad.console.pages.bus_actions import copies_of, message_buttons
from postroad.console.parts.actions import ask_all
from postroad.console.parts.charts import spark
from postroad.console.parts.dialogs import row_button
from postroad.console.parts.lists import (
    choice_field,
    crumbs,
    download_note,
    filter_form,
    gone,
    search_field,
    tabs,
    timeline,
)
from postroad.console.parts.resources import message_cell, part_table, show_resource
from postroad.console.view import View
from postroad.operate import Column, Row

SHOWN_CHARACTERS = 160
# The maximum size of a value in PostgreSQL.
MAX_CHARACTERS = 1_000_000_000
# Columns of a copy of the message; each consumer has one.
COPIES = (
    Column("consumer", "Consumer", "Подписчик"),
    Column("state", "State", "Состояние", "state"),
    *(bus.MESSAGES.column(name) for name in ("attempts", "error", "due_at")),
    Column("holder", "Held by", "Кто держит"),
)


def add_download(context: Context) -> None:
    """Register the URL that serves the whole payload of a message."""

    async def data(iid: str) -> Response:
        """Send the whole payload of a message as a file."""
        try:
            found = await browse.find(context.bus, iid, MAX_CHARACTERS)
        except BusError:
            found = []
        if not found:
            return PlainTextResponse("the message does not exist any more", status_code=404)
        headers = {"content-disposition": "attachment"}
        return PlainTextResponse(found[0][2].data or "", headers=headers)

    app.add_api_route("/bus/data/{iid}", data)


@page("/bus/queues/{queue}/messages", "bus", "bus.messages_title")
async def _messages(view: View) -> None:
    t, queue = view.t, view.path("queue")
    consumer = view.query("consumer") or "default"
    state: State = next((one for one in STATES if one == view.query("state")), "ready")
    search, order = view.query("search"), view.query("order")

    async def parts() -> Markup:
        found = [one for one in await view.status() if one.queue == queue]
        counts = {
            each: ("≈ " if one.is_estimate else "") + number(one.ready)
            if each == "ready"
            else count_of([getattr(one, COUNTED[each])])
            for one in found
            if one.consumer == consumer
            for each in COUNTED
        }
        return tabs(
            t,
            [
                (t.state(each), view.here(state=each), each == state, counts.get(each))
                for each in STATES
            ],
        )

    ui.html(_crumbs(view, queue, (t("bus.messages"), None)), sanitize=False)
    await view.live(parts)
    consumers = {one.consumer: one.consumer for one in await view.context.bus.consumers(queue)}
    orders = {"": t("bus.oldest_first"), "down": t("bus.latest_first")}
    fields = (
        search_field(t, search, t("bus.message_search_hint")),
        choice_field("consumer", t("bus.consumer"), consumers, consumer),
        choice_field("order", t("bus.order"), orders, order),
    )
    hidden = {"state": state, "sort": "id"}
    form = filter_form(t, view.request.url.path, fields, hidden)
    ui.html(form, sanitize=False)
    actions = (bus.REDRIVE_MESSAGES, bus.MOVE_MESSAGES, bus.PURGE_MESSAGES)
    more = ([bus.TIMES[state]] if state in bus.TIMES else []) + (
        ["error"] if state == "dead" else []
    )
    await show_resource(
        view,
        bus.MESSAGES,
        fixed={"queue": queue, "consumer": consumer, "state": state},
        names=("iid", "added", *more, "attempts", "properties", "size", "data"),
        cells={
            **message_cell("iid"),
            "properties": lambda row: _pairs(row["properties"]),
            "data": _data,
        },
        has_form=False,
        actions=() if state == "retained" else actions[state != "dead" :],
    )


def _data(row: Row) -> Markup:
    whole = row["data"] or ""
    shown = whole[:SHOWN_CHARACTERS]
    cut = "…" if len(shown.encode()) < (row.get("size") or len(whole)) else ""
    return element("span", shown + cut, class_="mono")


def _crumbs(view: View, queue: str, *more: tuple[str, str | None]) -> Markup:
    place = (queue, address("bus", "queues", queue))
    return crumbs((view.t("nav.bus"), address("bus")), place, *more)


def _pairs(values: Mapping[str, str | None]) -> Markup | str:
    shown = [
        element("span", f"{name}={value}", class_="badge plain") for name, value in values.items()
    ]
    return joined(shown) or NOTHING


@page("/bus/messages/{iid}", "bus", "bus.message_title")
async def _message(view: View) -> None:
    t, iid = view.t, view.path("iid")
    queue = iid.partition(".")[0]

    def named(title: str, values: Mapping[str, object]) -> Markup:
        none = element("p", NOTHING, class_="note")
        return card(title, facts(values.items()) if values else none)

    async def copies() -> Markup:
        found = await copies_of(view, iid)
        kept = await view.rows(bus.DEAD_ORIGINALS, {"iid": iid})
        title = t("bus.originals")
        shown_before = [card(title, part_table(view, bus.DEAD_ORIGINALS.listed, kept, label=title))]
        originals = joined(shown_before if kept else ())
        if not found:
            missing = gone(t("bus.message_gone"), t("bus.message_gone_advice"))
            return joined((missing, originals))
        shown = found[0][2]
        data = element("pre", pretty(shown.data), class_="data", tabindex="0")
        is_cut = shown.data is not None and len(shown.data.encode()) < (shown.size or 0)
        length = len(shown.data or "") if is_cut else None
        note = download_note(t, shown.size, length, address("bus", "data", iid), f"{iid}.txt")
        times = {t("bus.added"): moment(shown.added), t("bus.expires"): moment(shown.expires)}
        if trace := (shown.headers.get("traceparent") or "").split("-")[1:2]:
            times[t("bus.trace")] = link(trace[0], address("find", q=trace[0]), class_="mono")
        parts = element(
            "div",
            card(t("bus.data"), data, note=note),
            named(t("bus.properties"), shown.properties),
            named(t("bus.headers"), shown.headers),
            named(t("bus.times"), times),
            class_="columns",
        )
        return joined((await copies_card(view, iid), parts, await attempts(), originals))

    async def attempts() -> Markup | None:
        is_dead = any(state == "dead" for _, state, _ in await copies_of(view, iid))
        dead = await view.rows(bus.DEAD, {"iid": iid}) if is_dead else ()
        steps = [
            (
                f"{row['consumer']}: {t('bus.attempt', number=tried['attempt'])}",
                moment(datetime.fromisoformat(tried["at"])),
                tried["error"] or t("bus.no_error"),
                "bad",
            )
            for row in dead
            for tried in row["history"] or ()
        ]
        return timeline(t, steps, t("bus.failures")) if steps else None

    messages = (t("bus.messages"), address("bus", "queues", queue, "messages"))
    ui.html(_crumbs(view, queue, messages, (iid, None)), sanitize=False)
    await message_buttons(view, queue, iid)
    ui.html(link(t("bus.journey"), address("find", q=iid), class_="button plain"), sanitize=False)
    await view.live(copies)


async def copies_card(view: View, iid: str) -> Markup:
    """Show the state of a message at each consumer of its queue, and who holds it."""
    t, found = view.t, {name: (state, one) for name, state, one in await copies_of(view, iid)}
    holders = await view.rows(bus.WORKERS, {"holds": iid})
    held = {row["consumer"]: row for row in holders}
    queue, rows = iid.partition(".")[0], list[Row]()
    for consumer in await view.cached(
        ("bus.consumers", queue), partial(view.context.bus.consumers, queue)
    ):
        name = consumer.consumer
        state, copy = found.get(name, ("passed" if consumer.selector else "consumed", None))
        facts = asdict(copy) if copy else dict.fromkeys(("attempts", "error", "due_at"))
        rows.append({"consumer": name, "state": state, **facts, "holder": held.get(name)})
    cells = {"holder": partial(_holder, view, iid)}
    return card(t("bus.copies"), part_table(view, COPIES, rows, label=t("bus.copies"), cells=cells))


def _holder(view: View, iid: str, row: Row) -> Markup | str:
    """Show the worker that holds a leased message, and since when."""
    if row["state"] != "leased":
        return NOTHING
    if row["holder"] is None:
        return view.t("bus.holder_unknown")
    one = row["holder"]
    age = view.t.age(datetime.now(UTC) - datetime.fromisoformat(one["held"][iid]))
    return joined((link(f"{one['host']}, PID {one['pid']}", address("workers")), f" · {age}"))


@page("/bus/dead", "bus", "bus.dead")
async def _dead(view: View) -> None:
    t, redrive = view.t, bus.DEAD_ACTIONS[0]

    def error(row: Row) -> Markup:
        chosen = {"queue": row["queue"], "consumer": row["consumer"], "group": row["fingerprint"]}
        return link(row["error"] or t("bus.no_error"), address("bus", "dead", "messages", **chosen))

    def button(row: Row) -> Markup | None:
        label = t("bus.redrive_count", count=number(row["messages"]))
        return row_button(view, label, redrive.verb, row["id"])

    async def ask(key: str) -> None:
        names = dict(zip(("queue", "consumer", "group"), key.split("/"), strict=False))
        await ask_all(view, redrive, names)

    ui.html(element("p", t("bus.groups_note"), class_="note"), sanitize=False)
    view.on_row(redrive.verb, ask)
    await show_resource(
        view,
        bus.DEAD_GROUPS,
        to=lambda row: address("bus", "queues", row["queue"]),
        cells={"error": error, "messages": lambda row: badge(number(row["messages"]), "dead")},
        names=("queue", "consumer", "error", "messages", "first_at", "last_at"),
        more={t("bus.day"): lambda row: spark(row["trend"], t("bus.day")), "": button},
        sort="messages",
    )


@page("/bus/dead/messages", "bus", "bus.dead", tab="/bus/dead")
async def _dead_messages(view: View) -> None:
    cells = {**message_cell("iid"), "data": _data}
    await show_resource(view, bus.DEAD, cells=cells, actions=bus.DEAD_ACTIONS[:3])
