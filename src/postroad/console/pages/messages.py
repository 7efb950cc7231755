"""Messages: page by page without taking them, one of them in full, the dead by reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import APIRouter
from nicegui import ui
from starlette.responses import PlainTextResponse, Response

from postroad.bus import BusError
from postroad.bus import browse as looking
from postroad.bus.browse import STATES, BrowsedMessage, Selection, State
from postroad.console.context import Context
from postroad.console.frame import add_page
from postroad.console.gate import PREFIX
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
from postroad.console.pages.bus import bus_tabs
from postroad.console.pages.bus_actions import bulk_button, message_buttons
from postroad.console.parts.listing import PAGE_ROWS
from postroad.console.parts.lists import (
    crumbs,
    empty,
    filter_form,
    gone,
    nothing_found,
    pager,
    tabs,
)
from postroad.console.parts.sorting import search_form, sortable
from postroad.console.view import View

SHOWN_CHARACTERS = 160
# PostgreSQL keeps at most a gigabyte in a value.
MAX_CHARACTERS = 1_000_000_000


def add_message_pages(context: Context) -> None:
    """Register the pages."""
    add_page(context, "/bus/queues/{queue}/messages", "bus", "bus.messages_title", _messages)
    add_page(context, "/bus/messages/{iid}", "bus", "bus.message_title", _message)
    add_page(context, "/bus/dead", "bus", "bus.dead", _dead)


async def _messages(view: View) -> None:
    t, bus, queue = view.t, view.context.bus, view.path("queue")
    consumer = view.query("consumer") or "default"
    state: State = next((one for one in STATES if one == view.query("state")), "ready")
    search, place, is_latest = (
        view.query("search"),
        view.place("place"),
        view.query("order") == "latest",
    )

    def here(**changed: object) -> str:
        given: dict[str, object] = {
            "consumer": consumer,
            "state": state,
            "search": search,
            "order": "latest" if is_latest else "",
            "place": place,
            **changed,
        }
        return address("bus", "queues", queue, "messages", **given)

    ui.html(
        crumbs(
            (t("nav.bus"), address("bus")),
            (queue, address("bus", "queues", queue)),
            (t("bus.messages"), None),
        ),
        sanitize=False,
    )

    async def parts() -> Markup:
        one = next(
            (
                each
                for each in await view.status()
                if (each.queue, each.consumer) == (queue, consumer)
            ),
            None,
        )
        counts = (
            {
                "ready": ("≈ " if one.is_estimate else "") + number(one.ready),
                "delayed": count_of([one.delayed]),
                "waiting": count_of([one.blocked]),
                "leased": count_of([one.leased]),
                "dead": count_of([one.dmq]),
            }
            if one
            else {}
        )
        return tabs(
            t,
            [
                (t.state(each), here(state=each, place=None), each == state, counts.get(each))
                for each in STATES
            ],
        )

    async def listed() -> Markup:
        page = await looking.browse(
            bus,
            queue,
            consumer,
            state,
            place=place,
            is_descending=is_latest,
            amount=PAGE_ROWS,
            search=search or None,
            max_characters=SHOWN_CHARACTERS,
        )
        note = t("bus.search_goes_on") if search and page.next_place is not None else ""
        return joined(
            (
                nothing_found(t, here(search=None, place=None))
                if search and not page.messages
                else _message_table(view, page.messages, state),
                pager(
                    t,
                    here(place=None) if place is not None else None,
                    here(place=page.next_place) if page.next_place is not None else None,
                    note,
                ),
            )
        )

    await view.live(parts)
    consumers = {one.consumer: one.consumer for one in await bus.consumers(queue)}
    orders = {"": t("bus.oldest_first"), "latest": t("bus.latest_first")}
    with ui.element("div").classes("row"):
        ui.html(
            filter_form(
                t,
                address("bus", "queues", queue, "messages"),
                search=search,
                hidden={"state": state},
                choices={
                    "consumer": (t("bus.consumer"), consumers),
                    "order": (t("bus.order"), orders),
                },
                chosen={"consumer": consumer, "order": "latest" if is_latest else ""},
                hint=t("bus.message_search_hint"),
            ),
            sanitize=False,
        )
        ui.space()
        selection = Selection(queue, consumer, state, search or None)
        if state == "dead":
            bulk_button(view, "redrive", selection)
        bulk_button(view, "move", selection)
        bulk_button(view, "purge", selection)
    await view.live(listed)


def _message_table(view: View, messages: Sequence[BrowsedMessage], state: State) -> Markup:
    t = view.t
    has_due = state in ("delayed", "leased", "dead")
    due = {"delayed": t("bus.due"), "leased": t("bus.leased_until"), "dead": t("bus.died_at")}
    rows = []
    for one in messages:
        data = one.data or ""
        cut = data + ("…" if len(data.encode()) < (one.size or 0) else "")
        rows.append(
            (
                link(one.iid, address("bus", "messages", one.iid), class_="mono"),
                moment(one.added),
                *((moment(one.due_at),) if has_due else ()),
                *((one.error or NOTHING,) if state == "dead" else ()),
                number(one.attempts),
                _pairs(one.properties),
                t.size(one.size),
                element("span", cut, class_="mono"),
            )
        )
    columns = [
        Column(t("bus.iid"), "nowrap"),
        Column(t("bus.added"), "nowrap"),
        *((Column(due[state], "nowrap"),) if has_due else ()),
        *((Column(t("bus.error"), "wide"),) if state == "dead" else ()),
        Column(t("bus.attempts"), "num"),
        Column(t("bus.properties")),
        Column(t("bus.size"), "num"),
        Column(t("bus.data")),
    ]
    return table(
        columns,
        rows,
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

    async def copies() -> Markup:
        found = await view.cached(("bus.message", iid), lambda: looking.find(view.context.bus, iid))
        if not found:
            return gone(t("bus.message_gone"), t("bus.message_gone_advice"))
        shown = found[0][2]
        return joined(
            (
                card(
                    t("bus.copies"),
                    table(
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
                    ),
                ),
                element("div", style="height:20px"),
                element(
                    "div",
                    card(
                        t("bus.data"),
                        element("pre", pretty(shown.data), class_="data", tabindex="0"),
                        note=_size(view, shown),
                    ),
                    card(
                        t("bus.properties"),
                        facts(shown.properties.items())
                        if shown.properties
                        else element("p", NOTHING, class_="note"),
                    ),
                    card(
                        t("bus.headers"),
                        facts(shown.headers.items())
                        if shown.headers
                        else element("p", NOTHING, class_="note"),
                    ),
                    card(
                        t("bus.times"),
                        facts(
                            [
                                (t("bus.added"), moment(shown.added)),
                                (t("bus.expires"), moment(shown.expires)),
                            ]
                        ),
                    ),
                    class_="columns",
                ),
            )
        )

    ui.html(
        crumbs(
            (t("nav.bus"), address("bus")),
            (queue, address("bus", "queues", queue)),
            (t("bus.messages"), address("bus", "queues", queue, "messages")),
            (iid, None),
        ),
        sanitize=False,
    )
    await message_buttons(view, queue, iid)
    await view.live(copies)


def _size(view: View, one: BrowsedMessage) -> Markup:
    """Show the size of a payload, whether all of it is shown, and where to get the whole."""
    t = view.t
    is_cut = one.data is not None and len(one.data.encode()) < (one.size or 0)
    cut = t("bus.cut", shown=number(len(one.data or "")))
    return element(
        "span",
        t.size(one.size),
        f" · {cut}" if is_cut else "",
        " · ",
        link(t("bus.download"), address("bus", "data", one.iid), download=f"{one.iid}.txt"),
        class_="note",
    )


def data_router(context: Context) -> APIRouter:
    """Return the route that serves the whole payload of a message as a file."""
    router = APIRouter(prefix=PREFIX, include_in_schema=False)

    @router.get("/bus/data/{iid}")
    async def data(iid: str) -> Response:
        try:
            found = await looking.find(context.bus, iid, MAX_CHARACTERS)
        except BusError:
            found = []
        if not found:
            return PlainTextResponse("the message is gone", status_code=404)
        headers = {"content-disposition": "attachment"}
        return PlainTextResponse(found[0][2].data or "", headers=headers)

    return router


async def _dead(view: View) -> None:
    t, bus = view.t, view.context.bus

    async def reasons() -> Markup:
        found = await view.cached("bus.reasons", lambda: looking.dead_reasons(bus))
        return sortable(
            view,
            "reasons",
            [
                Column(t("bus.queue")),
                Column(t("bus.consumer")),
                Column(t("bus.error"), "wide"),
                Column(t("bus.messages"), "num"),
                Column(t("bus.first_died"), "nowrap"),
                Column(t("bus.last_died"), "nowrap"),
            ],
            [
                (
                    link(one.queue, address("bus", "queues", one.queue)),
                    one.consumer,
                    link(
                        one.error or t("bus.no_error"),
                        address(
                            "bus",
                            "queues",
                            one.queue,
                            "messages",
                            consumer=one.consumer,
                            state="dead",
                            search=one.error[:60],
                        ),
                    ),
                    badge(number(one.messages) + ("" if one.is_complete else "+"), "dead"),
                    moment(one.first_at),
                    moment(one.last_at),
                )
                for one in found
            ],
            label=t("bus.dead"),
            empty=empty(t("bus.no_dead"), t("bus.no_dead_advice")),
        )

    ui.html(bus_tabs(view, "dead"), sanitize=False)
    ui.html(search_form(view, t("bus.reason_hint")), sanitize=False)
    ui.html(element("p", t("bus.reasons_note"), class_="note"), sanitize=False)
    await view.live(reasons)
