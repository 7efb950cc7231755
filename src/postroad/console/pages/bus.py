"""The bus: all queues, one queue with its charts, and what may be done with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from nicegui import ui

from postroad.bus import Consumer, ConsumerStatus
from postroad.bus.browse import Selection
from postroad.console.context import Context
from postroad.console.frame import add_page
from postroad.console.history import Point, posted_per_second
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
    rate,
    table,
)
from postroad.console.pages.bus_actions import bulk_button, post_button
from postroad.console.parts.charts import Line, line_chart, spark
from postroad.console.parts.listing import PAGE_ROWS, say_gone
from postroad.console.parts.lists import (
    crumbs,
    empty,
    figures,
    filter_form,
    nothing_found,
    pager,
    tabs,
)
from postroad.console.view import View

OLD = timedelta(minutes=5)

_SORTS = {
    "queue": lambda one: (one.queue, one.consumer),
    "depth": lambda one: one.depth,
    "dmq": lambda one: one.dmq,
    "posted": lambda one: one.posted_per_second or 0,
    "consumed": lambda one: one.consumed_per_second or 0,
    "age": lambda one: one.oldest_age or timedelta(0),
}


def add_bus_pages(context: Context) -> None:
    """Register the pages."""
    add_page(context, "/bus", "bus", "bus.title", _queues)
    add_page(context, "/bus/queues/{queue}", "bus", "bus.queue_title", _queue)


def bus_tabs(view: View, shown: str) -> Markup:
    """Lead to the parts of the bus."""
    t = view.t
    return tabs(
        t,
        [
            (t("bus.queues"), address("bus"), shown == "queues", None),
            (t("bus.dead"), address("bus", "dead"), shown == "dead", None),
            (t("bus.waiting"), address("bus", "waiting"), shown == "waiting", None),
            (t("nav.sagas"), address("bus", "sagas"), shown == "sagas", None),
        ],
    )


async def _queues(view: View) -> None:
    t = view.t
    search, sort, order = view.query("search"), view.query("sort") or "depth", view.query("order")
    start = max(view.place("start") or 0, 0)

    async def totals() -> Markup:
        found = await view.status()
        return _totals(view, found)

    async def listed() -> Markup:
        found = await view.status()
        chosen = [one for one in found if search.lower() in f"{one.queue} {one.consumer}".lower()]
        is_up = order == "up" if order else sort == "queue"
        chosen.sort(key=_SORTS.get(sort, _SORTS["depth"]), reverse=not is_up)
        return _queue_table(view, chosen, search, sort, is_up, start)

    ui.html(bus_tabs(view, "queues"), sanitize=False)
    await view.live(totals)
    with ui.element("div").classes("row"):
        ui.html(
            filter_form(
                t,
                address("bus"),
                search=search,
                hidden={"sort": sort, "order": order},
                hint=t("bus.search_hint"),
            ),
            sanitize=False,
        )
        ui.space()
        post_button(view, None)
    await view.live(listed)
    with ui.element("div").classes("columns"):
        history = view.context.history
        line_chart(
            view,
            t("bus.rates"),
            lambda: _rate_lines(view, history.total()),
            unit=t("unit.per_second"),
        )
        line_chart(
            view,
            t("bus.depth"),
            lambda: {
                t("bus.depth"): [(p.at, float(p.depth)) for p in history.total()],
                t("bus.dmq"): [(p.at, float(p.dmq)) for p in history.total()],
            },
        )


def _rate_lines(view: View, points: Sequence[Point]) -> Mapping[str, Line]:
    """Return what happened per second as lines; those that never happened are left out."""
    kinds = ("posted", "consumed", "rejected", "died", "expired")
    lines = {
        view.t(f"bus.{kind}"): [(p.at, getattr(p, f"{kind}_per_second")) for p in points]
        for kind in kinds
    }
    always = (view.t("bus.posted"), view.t("bus.consumed"))
    return {
        name: line
        for name, line in lines.items()
        if name in always or any(value for _, value in line)
    }


def _totals(view: View, found: Sequence[ConsumerStatus]) -> Markup:
    t = view.t
    queues = len({one.queue for one in found})
    dead = [one.dmq for one in found]
    oldest = max((one.oldest_age for one in found if one.oldest_age), default=None)
    return figures(
        [
            (t.plural("bus.queues_n", queues), number(queues), ""),
            (t("bus.depth"), number(sum(one.depth for one in found)), ""),
            (t("bus.posted_per_second"), rate(posted_per_second(found)), ""),
            (
                t("bus.consumed_per_second"),
                rate(sum(one.consumed_per_second or 0 for one in found)),
                "",
            ),
            (t("bus.oldest"), t.age(oldest), "wait" if oldest and oldest > OLD else ""),
            (t("bus.dmq"), count_of(dead), "bad" if any(dead) else "good"),
        ]
    )


def _queue_table(
    view: View, rows: Sequence[ConsumerStatus], search: str, sort: str, is_up: bool, start: int
) -> Markup:
    t = view.t

    def head(title: str, name: str, kind: str = "num") -> Column:
        is_this = sort == name
        turned = "down" if (is_this and is_up) else "up" if is_this else ""
        order = ("ascending" if is_up else "descending") if is_this else None
        return Column(title, kind, address("bus", search=search, sort=name, order=turned), order)

    columns = [
        head(t("bus.queue"), "queue", ""),
        Column(t("bus.consumer")),
        head(t("bus.depth"), "depth"),
        Column(t("state.delayed"), "num"),
        Column(t("state.waiting"), "num"),
        Column(t("state.leased"), "num"),
        head(t("bus.dmq"), "dmq"),
        head(t("bus.posted_per_second"), "posted"),
        head(t("bus.consumed_per_second"), "consumed"),
        head(t("bus.oldest"), "age"),
        Column(t("bus.trend")),
    ]
    page = rows[start : start + PAGE_ROWS]
    if search and not page:
        return nothing_found(t, address("bus"))
    shown = table(
        columns,
        [
            (
                link(one.queue, address("bus", "queues", one.queue)),
                one.consumer,
                joined(("≈ " if one.is_estimate else "", number(one.depth))),
                count_of([one.delayed]),
                count_of([one.blocked]),
                count_of([one.leased]),
                _dead_link(one),
                rate(one.posted_per_second),
                rate(one.consumed_per_second),
                t.age(one.oldest_age),
                spark(
                    [p.depth for p in view.context.history.of(one.queue, one.consumer)][-60:],
                    t("bus.depth"),
                ),
            )
            for one in page
        ],
        label=t("bus.queues"),
        empty=empty(
            t("bus.no_queue"),
            element(
                "span", t("bus.no_queue_advice"), " ", element("code", "postroad bus create orders")
            ),
        ),
    )
    order = "up" if is_up else "down"
    following = start + PAGE_ROWS if start + PAGE_ROWS < len(rows) else None
    note = t("common.rows_of", first=start + 1, last=start + len(page), total=number(len(rows)))
    return joined(
        (
            shown,
            pager(
                t,
                address("bus", search=search, sort=sort, order=order) if start else None,
                address("bus", search=search, sort=sort, order=order, start=following)
                if following
                else None,
                note if len(rows) > PAGE_ROWS else "",
            ),
        )
    )


def _dead_link(one: ConsumerStatus) -> Markup | str:
    if not one.dmq:
        return "0"
    href = address("bus", "queues", one.queue, "messages", consumer=one.consumer, state="dead")
    return link(badge(count_of([one.dmq]), "dead"), href)


async def _queue(view: View) -> None:
    t, name = view.t, view.path("queue")
    bus, history = view.context.bus, view.context.history
    found = [one for one in await view.cached("bus.queues", bus.queues) if one.queue == name]
    ui.html(crumbs((t("nav.bus"), address("bus")), (name, None)), sanitize=False)
    if not found:
        say_gone(t("bus.queue_gone"))
        return
    shape = found[0]
    consumer = view.query("consumer") or shape.consumers[0]

    async def consumers() -> Markup:
        rows = [one for one in await view.status() if one.queue == name]
        settings = {
            one.consumer: one
            for one in await view.cached(("bus.consumers", name), lambda: bus.consumers(name), 10)
        }
        return joined(
            (
                _totals(view, rows),
                element("div", style="height:16px"),
                _consumer_table(view, name, consumer, rows, settings),
            )
        )

    await view.live(consumers)
    with ui.element("div").classes("row"):
        post_button(view, shape)
        bulk_button(view, "redrive", Selection(name, consumer, "dead"))
        bulk_button(view, "purge", Selection(name, consumer))
        ui.html(
            link(
                t("bus.browse"),
                address("bus", "queues", name, "messages", consumer=consumer),
                class_="button plain",
            ),
            sanitize=False,
        )
    with ui.element("div").classes("columns"):
        line_chart(
            view,
            f"{t('bus.depth')} · {consumer}",
            lambda: {
                t("bus.depth"): [(p.at, float(p.depth)) for p in history.of(name, consumer)],
                t("bus.dmq"): [(p.at, float(p.dmq)) for p in history.of(name, consumer)],
            },
        )
        line_chart(
            view,
            f"{t('bus.rates')} · {consumer}",
            lambda: _rate_lines(view, history.of(name, consumer)),
            unit=t("unit.per_second"),
        )
        line_chart(
            view,
            f"{t('bus.oldest')} · {consumer}",
            lambda: {
                t("bus.oldest"): [(p.at, p.age_seconds) for p in history.of(name, consumer)],
            },
            unit=t("unit.s"),
        )
        ui.html(
            card(
                t("bus.shape"),
                facts(
                    [
                        (t("bus.payload"), shape.payload),
                        (t("bus.mode"), t.state(shape.mode)),
                        (t("bus.segments"), f"{shape.segments} / {shape.ncons}"),
                        (
                            t("bus.has_roles"),
                            t("common.yes") if shape.is_roles_security_model else t("common.no"),
                        ),
                        (t("common.created"), moment(shape.created_at)),
                    ]
                ),
            ),
            sanitize=False,
        )


def _consumer_table(
    view: View,
    name: str,
    shown: str,
    rows: Sequence[ConsumerStatus],
    settings: Mapping[str, Consumer],
) -> Markup:
    t = view.t
    return table(
        [
            Column(t("bus.consumer")),
            Column(t("bus.selector"), "mono"),
            Column(t("state.ready"), "num"),
            Column(t("state.delayed"), "num"),
            Column(t("state.waiting"), "num"),
            Column(t("state.leased"), "num"),
            Column(t("bus.dmq"), "num"),
            Column(t("bus.oldest"), "num"),
            Column(t("bus.attempts"), "num"),
        ],
        [
            (
                link(
                    one.consumer,
                    address("bus", "queues", name, consumer=one.consumer),
                    aria_current="true" if one.consumer == shown else None,
                ),
                (settings[one.consumer].selector if one.consumer in settings else None) or NOTHING,
                *(
                    link(
                        count,
                        address(
                            "bus", "queues", name, "messages", consumer=one.consumer, state=state
                        ),
                    )
                    for state, count in (
                        ("ready", number(one.ready)),
                        ("delayed", count_of([one.delayed])),
                        ("waiting", count_of([one.blocked])),
                        ("leased", count_of([one.leased])),
                        ("dead", count_of([one.dmq])),
                    )
                ),
                t.age(one.oldest_age),
                settings[one.consumer].max_attempts if one.consumer in settings else NOTHING,
            )
            for one in rows
        ],
        label=t("bus.consumers"),
        empty=empty(t("bus.no_consumer")),
    )
