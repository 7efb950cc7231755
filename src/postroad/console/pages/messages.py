"""Messages: listed by page without taking them, one in full, dead ones by reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nicegui import app, ui
from starlette.responses import PlainTextResponse, Response

from postroad.bus import BusError, browse
from postroad.bus.browse import STATES, BrowsedMessage, Selection, State
from postroad.bus.resources import DEAD_REASONS
from postroad.console.context import Context
from postroad.console.frame import add_page
from postroad.console.markup import (
    NOTHING,
    Column,
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
    table,
)
from postroad.console.pages.bus import COUNTED, bus_tabs
from postroad.console.pages.bus_actions import bulk_button, message_buttons
from postroad.console.parts.lists import (
    choice_field,
    crumbs,
    download_note,
    empty,
    filter_form,
    gone,
    nothing_found,
    pager,
    search_field,
    tabs,
)
from postroad.console.parts.resources import PAGE_ROWS, show_resource
from postroad.console.view import View
from postroad.operate import Row

SHOWN_CHARACTERS = 160
# The maximum size of a value in PostgreSQL.
MAX_CHARACTERS = 1_000_000_000
# The title of the time that belongs to a state.
DUE = {"delayed": "bus.due", "leased": "bus.leased_until", "dead": "bus.died_at"}


def add_message_pages(context: Context) -> None:
    """Register the pages."""
    add_page(context, "/bus/queues/{queue}/messages", "bus", "bus.messages_title", _messages)
    add_page(context, "/bus/messages/{iid}", "bus", "bus.message_title", _message)
    add_page(context, "/bus/dead", "bus", "bus.dead", _dead)

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


async def _messages(view: View) -> None:
    t, bus, queue = view.t, view.context.bus, view.path("queue")
    consumer = view.query("consumer") or "default"
    state: State = next((one for one in STATES if one == view.query("state")), "ready")
    search, place, order = view.query("search"), view.place("place"), view.query("order")
    selection = Selection(queue, consumer, state, search or None)

    async def parts() -> Markup:
        found = [one for one in await view.status() if one.queue == queue]
        counts = {
            each: ("≈ " if one.is_estimate else "") + number(one.ready)
            if each == "ready"
            else count_of([getattr(one, COUNTED[each])])
            for one in found
            if one.consumer == consumer
            for each in STATES
        }
        return tabs(
            t,
            [
                (t.state(each), view.here(state=each), each == state, counts.get(each))
                for each in STATES
            ],
        )

    async def listed() -> Markup:
        page = await browse.browse(
            bus,
            queue,
            consumer,
            state,
            search=search or None,
            place=place,
            is_descending=order == "latest",
            amount=PAGE_ROWS,
            max_characters=SHOWN_CHARACTERS,
        )
        is_cut = page.next_place is not None
        shown = (
            nothing_found(t, view.here(search=""))
            if search and not page.messages
            else _message_table(view, page.messages, state)
        )
        first = view.here() if place is not None else None
        following = view.here(place=page.next_place) if is_cut else None
        note = t("bus.search_goes_on") if search and is_cut else ""
        return joined((shown, pager(t, first, following, note)))

    ui.html(_crumbs(view, queue, (t("bus.messages"), None)), sanitize=False)
    await view.live(parts)
    consumers = {one.consumer: one.consumer for one in await bus.consumers(queue)}
    orders = {"": t("bus.oldest_first"), "latest": t("bus.latest_first")}
    fields = (
        search_field(t, search, t("bus.message_search_hint")),
        choice_field("consumer", t("bus.consumer"), consumers, consumer),
        choice_field("order", t("bus.order"), orders, order),
    )
    form = filter_form(t, view.request.url.path, fields, {"state": state})
    with ui.element("div").classes("row"):
        ui.html(form, sanitize=False)
        ui.space()
        if state == "dead":
            bulk_button(view, "redrive", selection)
        bulk_button(view, "move", selection)
        bulk_button(view, "purge", selection)
    await view.live(listed)


def _crumbs(view: View, queue: str, *more: tuple[str, str | None]) -> Markup:
    place = (queue, address("bus", "queues", queue))
    return crumbs((view.t("nav.bus"), address("bus")), place, *more)


def _message_table(view: View, messages: Sequence[BrowsedMessage], state: State) -> Markup:
    t = view.t

    def data(one: BrowsedMessage) -> Markup:
        shown = one.data or ""
        cut = "…" if len(shown.encode()) < (one.size or 0) else ""
        return element("span", shown + cut, class_="mono")

    def iid(one: BrowsedMessage) -> Markup:
        return link(one.iid, address("bus", "messages", one.iid), class_="mono")

    columns: list[tuple[str, str, Callable[[BrowsedMessage], object]]] = [
        (t("bus.iid"), "nowrap", iid),
        (t("bus.added"), "nowrap", lambda one: moment(one.added)),
    ]
    if state in DUE:
        columns.append((t(DUE[state]), "nowrap", lambda one: moment(one.due_at)))
    if state == "dead":
        columns.append((t("bus.error"), "wide", lambda one: one.error or NOTHING))
    columns += [
        (t("bus.attempts"), "num", lambda one: number(one.attempts)),
        (t("bus.properties"), "", lambda one: _pairs(one.properties)),
        (t("bus.size"), "num", lambda one: t.size(one.size)),
        (t("bus.data"), "", data),
    ]
    return table(
        [Column(title, kind) for title, kind, _ in columns],
        [[show(one) for *_, show in columns] for one in messages],
        label=t("bus.messages"),
        empty=empty(t("bus.no_message"), t("bus.no_message_advice")),
    )


def _pairs(values: Mapping[str, str | None]) -> Markup | str:
    shown = [
        element("span", f"{name}={value}", class_="badge plain") for name, value in values.items()
    ]
    return joined(shown) or NOTHING


async def _message(view: View) -> None:
    t, iid = view.t, view.path("iid")
    queue = iid.partition(".")[0]

    def named(title: str, values: Mapping[str, object]) -> Markup:
        none = element("p", NOTHING, class_="note")
        return card(title, facts(values.items()) if values else none)

    async def copies() -> Markup:
        found = await view.cached(("bus.message", iid), lambda: browse.find(view.context.bus, iid))
        if not found:
            return gone(t("bus.message_gone"), t("bus.message_gone_advice"))
        shown = found[0][2]
        listed = table(
            [
                Column(t("bus.consumer")),
                Column(t("common.state")),
                Column(t("bus.attempts"), "num"),
                Column(t("bus.error"), "wide"),
                Column(t("bus.due")),
            ],
            [
                (
                    consumer,
                    badge(t.state(state), state),
                    number(one.attempts),
                    one.error or NOTHING,
                    moment(one.due_at),
                )
                for consumer, state, one in found
            ],
            label=t("bus.copies"),
            empty="",
        )
        data = element("pre", pretty(shown.data), class_="data", tabindex="0")
        is_cut = shown.data is not None and len(shown.data.encode()) < (shown.size or 0)
        note = download_note(
            t,
            shown.size,
            len(shown.data or "") if is_cut else None,
            address("bus", "data", iid),
            f"{iid}.txt",
        )
        times = {t("bus.added"): moment(shown.added), t("bus.expires"): moment(shown.expires)}
        parts = element(
            "div",
            card(t("bus.data"), data, note=note),
            named(t("bus.properties"), shown.properties),
            named(t("bus.headers"), shown.headers),
            named(t("bus.times"), times),
            class_="columns",
        )
        return joined((card(t("bus.copies"), listed), element("div", style="height:20px"), parts))

    messages = (t("bus.messages"), address("bus", "queues", queue, "messages"))
    ui.html(_crumbs(view, queue, messages, (iid, None)), sanitize=False)
    await message_buttons(view, queue, iid)
    await view.live(copies)


async def _dead(view: View) -> None:
    t = view.t

    def error(row: Row) -> Markup:
        place = ("bus", "queues", row["queue"], "messages")
        chosen = {"consumer": row["consumer"], "state": "dead", "search": row["error"][:60]}
        return link(row["error"] or t("bus.no_error"), address(*place, **chosen))

    def count(row: Row) -> Markup:
        return badge(number(row["messages"]) + ("" if row["is_complete"] else "+"), "dead")

    ui.html(bus_tabs(view, "dead"), sanitize=False)
    ui.html(element("p", t("bus.reasons_note"), class_="note"), sanitize=False)
    await show_resource(
        view,
        DEAD_REASONS,
        to=lambda row: address("bus", "queues", row["queue"]),
        cells={"error": error, "messages": count},
        none="bus.no_dead",
        sort="messages",
    )
