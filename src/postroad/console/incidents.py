"""Problems of all components: one list for the overview and the alerts page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from postroad.bus.resources import STUCK_SAGAS
from postroad.console.markup import address, count_of
from postroad.console.pages import is_there
from postroad.console.resources import SERVICES
from postroad.console.view import View
from postroad.operate import Column, Filter, Resource, Row
from postroad.operate.memory import Rows

MAINTENANCE_LATE_SECONDS = 15
MAX_SAGAS_COUNTED = 1_000
SEVERITIES = ("critical", "error", "warning", "info")

# The page of the object that an alert is about, by the alert's key.
_OBJECTS = (
    (r"bus/paused/(\w+)(?:/\w+)?", ("bus", "queues")),
    (r"exchange/(?:contradiction|failed|in_doubt)/(.+)", ("exchange", "processes")),
    (r"exchange/(?:corrupt|parked)/([0-9]+)", ("exchange", "messages")),
    (r"intake\.(?:file|cleanup)\.([0-9]+)", ("intake", "files")),
    (r"intake\.server\.([0-9]+)", ("intake", "servers")),
    (r"coordination\.\w+\.(?:.+\.)?([0-9]+)", ("coordination", "events")),
)
_COMPONENTS = {"bridge": "bridges", "exchange": "exchange", "intake": "intake", "bus": "bus",
               "coordination": "coordination"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Incident:
    """A problem: an open alert, or a fact that the console detects (without a key)."""

    severity: str
    title: str
    href: str
    component: str
    body: str = ""
    key: str | None = None
    count: int | None = None
    since: datetime | None = None
    last_at: datetime | None = None
    acked_by: str | None = None
    cleared_at: datetime | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether it counts as red: an error that is not acknowledged."""
        return self.severity in ("critical", "error") and self.acked_by is None


def alert_address(key: str, component: str) -> str:
    """Return the page of the object that an alert is about, else that of its component."""
    for pattern, place in _OBJECTS:
        if found := re.fullmatch(pattern, key):
            return address(*place, found[1])
    if found := re.fullmatch(r"exchange/restored/(.+)", key):
        return address("exchange", database=found[1])
    page = _COMPONENTS.get(component)
    return address(page) if page else address("alerts")


async def incidents(view: View) -> Sequence[Incident]:
    """Collect the problems: unacknowledged ones first, the most severe first.

    Read-only, from cached values.
    """
    found = [*await _alerts(view), *await _services(view), *await _bus(view)]
    return sorted(found, key=lambda one: (one.acked_by is not None, SEVERITIES.index(one.severity)))


async def _rows(view: View) -> list[Row]:
    found = await incidents(view)
    return [{"rank": rank, "incident": one, **asdict(one)} for rank, one in enumerate(found)]


INCIDENTS = Resource(
    "console.incidents", "problem", Rows(_rows), "List the problems of all components.",
    (
        Column("rank", "Rank", "Место", "id", is_listed=False),
        Column("severity", "Severity", "Важность", "state"),
        Column("title", "What", "Что", is_sortable=True),
        Column("component", "Component", "Компонент", is_sortable=True),
        Column("count", "Times", "Раз", "number", is_sortable=True),
        Column("since", "Since", "Начало", "moment", is_sortable=True),
        Column("last_at", "Last", "Последнее", "moment", is_sortable=True),
        Column("acked_by", "Acknowledged by", "Кто принял", is_sortable=True),
    ),
    (
        Filter("search", "Search", "название, ключ, компонент", "title, key, component",
               columns=("title", "body", "key", "component"), is_search=True),
    ),
    key="rank", is_descending=False,
)  # fmt: skip


async def _alerts(view: View) -> list[Incident]:
    if not is_there("postroad.alerts"):
        return []
    from postroad.console.pages.alerts import open_alerts

    return [from_alert(one) for one in await open_alerts(view)]


def from_alert(one: Row) -> Incident:
    """Return an alert as an incident with a link to its object."""
    same = ("severity", "title", "body", "key", "count", "last_at", "cleared_at")
    return Incident(
        **{name: one[name] for name in same},
        href=alert_address(one["key"], one["room"]),
        component=one["room"],
        since=one["raised_at"],
        acked_by=(one["acked_by"] or "?") if one["acked_at"] else None,
    )


async def _services(view: View) -> list[Incident]:
    t, context = view.t, view.context
    found = [
        Incident(
            "error",
            t("overview.service_alert", service=one["name"], state=t.state(one["state"])),
            address("workers"),
            one["name"],
            one["error"] or "",
            since=one["since"],
        )
        for one in await view.load("services", SERVICES.all)
        if one["state"] in ("waiting", "lost")
    ]
    late = await view.cached("maintenance", context.database.maintenance_age_seconds, 5)
    if late > MAINTENANCE_LATE_SECONDS:
        age = timedelta(seconds=late)
        title = t("overview.maintenance_late", age=t.age(age))
        if age > timedelta(days=3650):
            # Without a run, the stored time is in 1970.
            title = t("overview.maintenance_never")
        found.append(Incident("error", title, address("workers"), "bus"))
    return found


async def _bus(view: View) -> list[Incident]:
    t = view.t
    found = []
    for one in sorted(await view.status(), key=lambda one: -one.dmq):
        if one.dmq:
            named = {"queue": one.queue, "consumer": one.consumer, "count": count_of([one.dmq])}
            place = ("bus", "queues", one.queue, "messages")
            href = address(*place, consumer=one.consumer, state="dead")
            found.append(Incident("warning", t("overview.dead_alert", **named), href, "bus"))
    stuck = await view.load("bus.sagas.stuck", STUCK_SAGAS.all, age=5)
    if stuck:
        count = f"{len(stuck)}{'+' if len(stuck) >= MAX_SAGAS_COUNTED else ''}"
        href = address("bus", "sagas", state="stuck")
        if len(stuck) == 1:
            href = address("bus", "sagas", stuck[0]["id"])
        since = min(one["created_at"] for one in stuck)
        title = t("overview.saga_alert", count=count)
        found.append(Incident("error", title, href, "bus", stuck[0]["error"] or "", since=since))
    return found
