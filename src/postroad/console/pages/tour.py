"""A guided tour of the sample, with faults that the user can cause and watch being recovered.

The page exists if `postroad up` runs the sample on the embedded database; only sample services can
be stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from postroad.console.frame import PLACES, page
from postroad.console.gate import PREFIX
from postroad.console.markup import (
    NOTHING,
    Markup,
    badge,
    card,
    element,
    facts,
    joined,
    link,
    moment,
    number,
)
from postroad.console.parts.dialogs import action_button
from postroad.console.parts.lists import gone, timeline
from postroad.console.resources import SERVICES
from postroad.console.view import View
from postroad.exchange.resources import DATABASES

SAMPLE_QUEUE = "sample_orders"


async def _orders(view: View) -> int:
    found = await view.status()
    return sum(
        one.ready + one.leased
        for one in found
        if one.queue == SAMPLE_QUEUE and one.consumer == "default"
    )


async def _letters(view: View) -> int:
    return sum(one["queued"] for one in await view.rows(DATABASES))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a sample service: how long it is stopped, and the messages that wait meanwhile."""

    # The key of the texts and of the button.
    key: str
    service: str
    away_seconds: float
    page: str
    waiting: Callable[[View], Awaitable[int]] | None = None
    # The number of messages that wait in normal operation.
    usual: int = 0


FAULTS = (
    Fault("worker", "sample-billing", 0, f"bus/queues/{SAMPLE_QUEUE}", _orders, 20),
    Fault("erp", "sample-erps", 20, "exchange", _letters, 6),
    Fault("sftp", "sample-sftp", 20, "intake"),
)


@dataclass(slots=True)
class Course:
    """What has been observed since a fault was caused."""

    broken_at: datetime
    back_at: datetime | None = None
    healed_at: datetime | None = None
    max_waiting: int = 0

    def observe(self, service: dict[str, Any], waiting: int, usual: int) -> None:
        """Record when the service is back and when no messages are waiting."""
        if self.healed_at is not None:
            return
        self.max_waiting = max(self.max_waiting, waiting)
        if service.get("state") == "running" and service["since"] > self.broken_at:
            self.back_at = service["since"]
            if waiting <= usual:
                self.healed_at = datetime.now(UTC)


@page("/tour", "tour", "tour.title")
async def _tour(view: View) -> None:
    t = view.t
    if view.context.crash is None:
        ui.html(gone(t("tour.none"), element("code", "postroad up")), sanitize=False)
        return
    sights = [
        element("li", link(t(f"nav.{key}"), PREFIX + path), ": ", t(f"tour.{key}"))
        for key, path in ((one.key, one.path) for one in PLACES)
        if f"tour.{key}" in t.entries
    ]
    intro = element("p", t("tour.intro"))
    ui.html(card(t("tour.see"), intro, element("ul", sights)), sanitize=False)
    for fault in FAULTS:
        await _show(view, fault, view.context.crash)
    after = element("ul", [element("li", t(f"tour.next_{n}")) for n in (1, 2, 3)])
    ui.html(card(t("tour.next"), after), sanitize=False)


async def _show(view: View, fault: Fault, crash: Callable[[str, float], None]) -> None:
    t = view.t
    courses: dict[str, Course] = view.context.more.setdefault("tour", {})

    async def service() -> dict[str, Any]:
        found = await view.rows(SERVICES)
        return next((one for one in found if one["name"] == fault.service), {})

    async def course() -> Markup:
        now = await service()
        waiting = await fault.waiting(view) if fault.waiting else 0
        shown = [
            (t("tour.service"), element("code", fault.service)),
            (t("common.state"), badge(t.state(now["state"]), now["state"]) if now else NOTHING),
            (t("tour.pid"), str(now.get("pid") or NOTHING)),
            (t("tour.restarts"), number(now.get("restarts"))),
        ]
        if fault.waiting is not None:
            shown.append((t("tour.waiting"), number(waiting)))
        found = courses.get(fault.key)
        if found is not None:
            found.observe(now, waiting, fault.usual)
        return joined((facts(shown), found and _steps(view, fault, found)))

    async def do() -> None:
        crash(fault.service, fault.away_seconds)
        courses[fault.key] = Course(datetime.now(UTC))

    async def press() -> None:
        await view.act("break", fault.service, do)

    async def is_running() -> bool:
        return (await service()).get("state") == "running"

    with ui.element("section").classes("card"):
        text = element("p", t(f"tour.{fault.key}_text"))
        watch = element("p", link(t("tour.watch"), f"/console/{fault.page}"))
        title = element("h2", t(f"tour.{fault.key}_title"))
        ui.html(joined((title, text, watch)), sanitize=False)
        label, test = t(f"tour.{fault.key}_button"), f"break-{fault.key}"
        button = action_button(view, label, press, test=test, is_danger=True)
        await view.live(course, class_="course")
    await view.offer(button, is_running)


def _steps(view: View, fault: Fault, course: Course) -> Markup:
    """Show the course of a fault as a timeline; the steps to come have no time."""
    t = view.t
    caught_up = t("tour.caught_up", count=number(course.max_waiting)) if fault.waiting else ""
    steps = (
        (t("tour.broken"), course.broken_at, "", "bad"),
        (t("tour.back"), course.back_at, "", "good"),
        (t("tour.healed"), course.healed_at, caught_up, "good"),
    )
    shown = [
        (word, moment(at) if at else t("tour.soon"), note if at else "", tone if at else "")
        for word, at, note, tone in steps
    ]
    return timeline(t, shown)
