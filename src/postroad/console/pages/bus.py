"""The bus: all queues, one queue with its charts, and their actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from nicegui import ui

from postroad.bus import ConsumerStatus
from postroad.bus import resources as bus
from postroad.console.frame import page
from postroad.console.history import HAPPENS, SPANS, latency, posted_per_second, traffic
from postroad.console.markup import (
    Markup,
    address,
    badge,
    count_of,
    element,
    joined,
    link,
    number,
    rate,
)
from postroad.console.pages.bus_actions import post_button
from postroad.console.parts.actions import action_buttons, ask_all, title_of
from postroad.console.parts.charts import Line, line_chart, spark
from postroad.console.parts.dialogs import action_button
from postroad.console.parts.lists import empty, figures, tabs
from postroad.console.parts.resources import (
    detail_facts,
    list_page,
    open_row,
    part_table,
    resource_table,
    show_resource,
)
from postroad.console.resources import SERVICES
from postroad.console.view import View
from postroad.operate import Row

OLD = timedelta(minutes=5)
TREND_POINTS = 60
# The figure that counts the messages in a state.
COUNTED = {"ready": "ready", "delayed": "delayed", "waiting": "blocked", "leased": "leased",
           "dead": "dmq"}  # fmt: skip
CONSUMER_COLUMNS = ("consumer", "state", "paused_by", "pause_reason", "selector", *COUNTED.values(),
                    "oldest_age", "max_attempts")  # fmt: skip


@page("/bus", "bus", "bus.title")
async def _queues(view: View) -> None:
    t = view.t

    async def totals() -> Markup:
        return figures(bus_figures(view, await view.status()))

    def trend(row: Row) -> Markup:
        points = view.context.history.of(row["queue"], row["consumer"])[-TREND_POINTS:]
        return spark([point["waiting"] for point in points], t("bus.depth"))

    await view.live(totals)
    with ui.element("div").classes("row"):
        post_button(view, None)
    advice = element(
        "span",
        t("empty.bus.consumer_figures_advice"),
        " ",
        element("code", "postroad bus create orders"),
    )
    await show_resource(
        view,
        bus.FIGURES,
        to=lambda row: address("bus", "queues", row["queue"]),
        cells=_cells(),
        more={t("bus.trend"): trend},
        advice=advice,
        sort="depth",
    )
    await _charts(view)


async def _charts(view: View, queue: str | None = None, consumer: str | None = None) -> None:
    """Draw the rates and the numbers of messages, for the last minutes or for a stored span.

    The charts of a span also have its totals and the restarts of services.
    """
    t, span = view.t, view.query("span")
    entries = [
        (t(f"bus.span_{name or 'live'}"), view.here(span=name), name == span, None)
        for name in ("", *SPANS)
    ]
    ui.html(tabs(t, entries), sanitize=False)
    of, is_live = f" · {consumer}" if consumer else "", span not in SPANS

    async def stored() -> list[Row]:
        key = ("bus.traffic", span, queue, consumer)
        return await view.load(key, traffic, span, queue, consumer, age=10)

    async def totals() -> Markup:
        found = await stored()
        sums = {kind: sum(row[kind] for row in found) for kind in HAPPENS}
        return figures(
            (t(f"bus.{kind}"), number(count), "bad" if kind == "died" and count else "")
            for kind, count in sums.items()
        )

    async def read() -> Sequence[Row]:
        if is_live:
            return view.context.history.of(queue, consumer)
        minutes = SPANS[span][1] / timedelta(minutes=1)
        return [
            {**row, **{kind: row[kind] / minutes for kind in HAPPENS}} for row in await stored()
        ]

    async def rates() -> Mapping[str, Line]:
        found = await read()
        # Rates that were always zero are omitted, except posts and consumption.
        shown = [one for one in HAPPENS if one in HAPPENS[:2] or any(row[one] for row in found)]
        return _lines(found, {t(f"bus.{kind}"): kind for kind in shown})

    async def lines(**columns: str) -> Mapping[str, Line]:
        return _lines(await read(), {t(f"bus.{title}"): name for title, name in columns.items()})

    async def latencies() -> Mapping[str, Line]:
        key = ("bus.latency", span, queue, consumer)
        found = await view.load(key, latency, span, queue, consumer, age=10)
        columns = (one for one in bus.HANDLING.columns if one.kind == "duration")
        return _lines(found, {title_of(view, one): one.name for one in columns})

    restarts = [] if is_live else await _restarts(view, SPANS[span][0])
    if not is_live:
        await view.live(totals)
    with ui.element("div").classes("columns"):
        unit = t("unit.per_second" if is_live else "unit.per_minute")
        await line_chart(view, t("bus.rates") + of, rates, unit=unit, restarts=restarts)
        waiting = partial(lines, depth="waiting", dmq="dead")
        await line_chart(view, t("bus.depth") + of, waiting, restarts=restarts)
        if not is_live:
            await line_chart(view, t("bus.latency") + of, latencies, unit=t("unit.s"))
        if is_live and consumer:
            ages = partial(lines, oldest="age_seconds")
            await line_chart(view, t("bus.oldest") + of, ages, unit=t("unit.s"))


def _lines(rows: Sequence[Row], columns: Mapping[str, str]) -> Mapping[str, Line]:
    return {
        title: [(row["at"], row[name]) for row in rows if row[name] is not None]
        for title, name in columns.items()
    }


async def _restarts(view: View, length: timedelta) -> list[tuple[datetime, str]]:
    """Return when services started in the last `length`; starts within a minute are combined."""
    started: dict[datetime, list[str]] = {}
    for one in await view.rows(SERVICES):
        if one["since"] > datetime.now(UTC) - length:
            minute = one["since"].replace(second=0, microsecond=0)
            started.setdefault(minute, []).append(one["name"])
    return [(at, ", ".join(names)) for at, names in started.items()]


def bus_figures(view: View, found: Sequence[ConsumerStatus]) -> list[tuple[str, object, str]]:
    """Return the sums over consumers, for `figures`."""
    t = view.t
    queues = len({one.queue for one in found})
    dead = [one.dmq for one in found]
    consumed = sum(one.consumed_per_second or 0 for one in found)
    oldest = max((one.oldest_age for one in found if one.oldest_age), default=None)
    return [
        (t.plural("bus.queues_n", queues), number(queues), ""),
        (t("bus.depth"), number(sum(one.depth for one in found)), ""),
        (t("bus.posted_per_second"), rate(posted_per_second(found)), ""),
        (t("bus.consumed_per_second"), rate(consumed), ""),
        (t("bus.oldest"), t.age(oldest), "wait" if oldest and oldest > OLD else ""),
        (t("bus.dmq"), count_of(dead), "bad" if any(dead) else "good"),
    ]


def _cells() -> dict[str, Callable[[Row], object]]:
    """Show counts as links to the messages; mark estimates."""

    def depth(row: Row) -> str:
        return ("≈ " if row["is_estimate"] else "") + number(row["depth"])

    def count(state: str, row: Row) -> Markup:
        value = row[COUNTED[state]]
        shown: Markup | str = number(value) if state == "ready" else count_of([value])
        if state == "dead" and value:
            shown = badge(str(shown), "dead")
        place = ("bus", "queues", row["queue"], "messages")
        return link(shown, address(*place, consumer=row["consumer"], state=state))

    return {"depth": depth, **{name: partial(count, state) for state, name in COUNTED.items()}}


@page("/bus/queues/{queue}", "bus", "bus.queue_title")
async def _queue(view: View) -> None:
    t, name = view.t, view.path("queue")
    queue = await open_row(view, bus.QUEUES, name)
    shape = await queue()
    consumer = view.query("consumer") or shape["consumers"][0]

    def choose(row: Row) -> Markup:
        is_shown = "true" if row["consumer"] == consumer else None
        href = address("bus", "queues", name, consumer=row["consumer"])
        return link(row["consumer"], href, aria_current=is_shown)

    async def consumers() -> Markup:
        found = [one for one in await view.status() if one.queue == name]
        rows = await view.rows(bus.FIGURES, {"queue": name})
        shown = resource_table(
            view,
            bus.FIGURES,
            rows,
            cells={**_cells(), "consumer": choose},
            names=CONSUMER_COLUMNS,
            none=empty(t("bus.no_consumer")),
        )
        return joined(
            (figures(bus_figures(view, found)), element("div", style="height:16px"), shown)
        )

    async def chosen() -> Row:
        read = partial(view.context.connections.run, bus.FIGURES.one, f"{name}/{consumer}")
        return await view.cached(("bus.figures", name, consumer), read, 1)

    async def definition() -> Markup:
        return detail_facts(view, bus.QUEUES, await queue(), t("bus.shape"))

    async def whole() -> Row:
        """Return the row of the queue for its pause: that of a consumer, without its own pause."""
        row = await chosen()
        is_paused = row["state"] == "paused" and row["paused_consumer"] is None
        state = "paused" if is_paused else "running"
        return {**row, "id": name, "consumer": None, "state": state}

    await view.live(consumers)
    # Only a queue with retention has messages to replay.
    replay = (bus.REPLAY,) if shape["retain"] or shape["retain_size"] else ()
    await action_buttons(view, (bus.PAUSE, bus.RESUME, bus.LIMIT, *replay), chosen)
    await action_buttons(view, [(bus.PAUSE, {}, t("bus.pause_queue"))], whole)
    with ui.element("div").classes("row"):
        post_button(view, name)
        for action, state in ((bus.REDRIVE_MESSAGES, "dead"), (bus.PURGE_MESSAGES, "ready")):
            given = {"queue": name, "consumer": consumer, "state": state, "search": ""}
            do, danger = partial(ask_all, view, action, given), action.is_danger
            title, test = title_of(view, action), f"{action.verb}-all"
            action_button(view, title, do, test=test, is_danger=danger)
        browse = address("bus", "queues", name, "messages", consumer=consumer)
        ui.html(link(t("bus.browse"), browse, class_="button plain"), sanitize=False)
    await _charts(view, name, consumer)
    await action_buttons(view, (bus.RETAIN, bus.TRACK, bus.SCHEMA), queue)
    await view.live(definition)
    await show_resource(view, bus.HANDLING, fixed={"queue": name}, has_form=False, name="handling_")


_ADD_SCHEDULE = element("code", "postroad bus schedules add")
list_page(bus.SCHEDULES, advice=_ADD_SCHEDULE, row_actions=bus.SCHEDULE_ACTIONS[:3])
_PROGRESS = {"progress": lambda row: f"{row['progress'] or 0:.0%}"}
list_page(bus.REPLAYS, row_actions=bus.REPLAY_ACTIONS, cells=_PROGRESS)


@page("/bus/schedules/{name:path}", "bus", "bus.schedule_title")
async def _schedule(view: View) -> None:
    t = view.t
    row = await open_row(view, bus.SCHEDULES, view.path("name"))

    async def shown() -> Markup:
        now = await row()
        runs = part_table(view, bus.RUNS, now["runs"], empty(t("bus.no_run")), label=t("bus.runs"))
        return joined((detail_facts(view, bus.SCHEDULES, now, now["schedule"]), runs))

    await action_buttons(view, bus.SCHEDULE_ACTIONS[:3], row)
    await view.live(shown)
