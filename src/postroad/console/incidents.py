"""Problems of all components: one list for the overview and the alerts page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from postroad.alerts.resources import ALERTS, HANDLED
from postroad.bus.resources import DEAD
from postroad.bus.saga_resources import STUCK_SAGAS
from postroad.console.markup import address, count_of
from postroad.console.resources import SERVICES
from postroad.console.view import View
from postroad.operate import Column, Filter, Resource, Row
from postroad.operate.memory import Rows

MAINTENANCE_LATE = timedelta(seconds=15)
MAX_OPEN = 200
MAX_SAGAS_COUNTED = 1_000
# The number of consumers for which the time of the first dead message is read.
MAX_DATED = 20
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
    """A problem: an open alert, or a fact that the console detects; `since` is when it began."""

    key: str
    severity: str
    title: str
    href: str
    component: str
    body: str = ""
    count: int | None = None
    since: datetime | None = None
    last_at: datetime | None = None
    owner: str | None = None
    muted_until: datetime | None = None
    muted_by: str | None = None
    mute_reason: str | None = None

    @property
    def is_handled(self) -> bool:
        """Whether it has an owner or is muted."""
        return self.owner is not None or self.muted_until is not None

    @property
    def is_urgent(self) -> bool:
        """Whether it counts as red: an error that is not handled."""
        return self.severity in ("critical", "error") and not self.is_handled


def alert_address(key: str, component: str) -> str:
    """Return the page of the object that an alert is about, else that of its component."""
    for pattern, place in _OBJECTS:
        if found := re.fullmatch(pattern, key):
            return address(*place, found[1])
    if found := re.fullmatch(r"exchange/restored/(.+)", key):
        return address("exchange", database=found[1])
    return address(_COMPONENTS.get(component, "alerts"))


async def open_alerts(view: View) -> Sequence[Row]:
    """Return the open alerts, shared by all pages."""
    return await view.rows(ALERTS, limit=MAX_OPEN)


async def incidents(view: View) -> Sequence[Incident]:
    """Collect the problems from cached values: unhandled ones first, the most severe first."""
    handled = {row["key"]: row for row in await view.rows(HANDLED)}
    facts = [*await _services(view), *await _bus(view)]
    facts = [_handled(one, handled.get(one.key)) for one in facts]
    facts += [from_alert(one) for one in await open_alerts(view)]
    return sorted(facts, key=lambda one: (one.is_handled, SEVERITIES.index(one.severity)))


def _handled(one: Incident, row: Row | None) -> Incident:
    if row is None:
        return one
    # Its owner took an earlier occurrence.
    is_owned = row["owned_at"] and (one.since is None or row["owned_at"] >= one.since)
    muted = {name: row[name] for name in ("muted_until", "muted_by", "mute_reason")}
    return replace(one, owner=row["owner"] if is_owned else None, **muted)


async def _rows(view: View) -> list[Row]:
    found = await incidents(view)
    return [
        {"rank": rank, "incident": one, "is_muted": one.muted_until is not None, **asdict(one)}
        for rank, one in enumerate(found)
    ]


INCIDENTS = Resource(
    "alerts.incidents", "problem", Rows(_rows), "List the problems of all components.",
    (
        Column("rank", "Rank", "Место", "id", is_listed=False),
        Column("severity", "Severity", "Важность", "state"),
        Column("title", "What", "Что", is_sortable=True),
        Column("component", "Component", "Компонент", is_sortable=True),
        Column("count", "Times", "Раз", "number", is_sortable=True),
        Column("since", "First seen", "Начало", "moment", is_sortable=True),
        Column("last_at", "Last", "Последнее", "moment", is_sortable=True),
        Column("owner", "Taken by", "Кто занимается", is_sortable=True),
        Column("key", "Key", "Ключ", "code", is_listed=False),
    ),
    (
        Filter("search", "Search", "название, ключ, компонент", "title, key, component",
               columns=("title", "body", "key", "component"), is_search=True),
    ),
    key="rank", identity="key", label="title", is_descending=False,
)  # fmt: skip


def from_alert(one: Row) -> Incident:
    """Return an alert as an incident with a link to its object."""
    same = ("key", "severity", "title", "body", "count", "last_at", "muted_until", "muted_by",
            "mute_reason")  # fmt: skip
    return Incident(
        **{name: one[name] for name in same},
        href=alert_address(one["key"], one["room"]),
        component=one["room"],
        since=one["raised_at"],
        owner=(one["acked_by"] or "?") if one["acked_at"] else None,
    )


async def _services(view: View) -> list[Incident]:
    t = view.t
    found = [
        Incident(
            f"service/{one['id']}",
            "error",
            t("overview.service_alert", service=one["name"], state=t.state(one["state"])),
            address("workers"),
            one["name"],
            one["error"] or "",
            since=one["since"],
        )
        for one in await view.rows(SERVICES)
        if one["state"] in ("waiting", "lost")
    ]
    age = await view.context.maintenance_age()
    if age > MAINTENANCE_LATE:
        title = t("overview.maintenance_late", age=t.age(age))
        if age > timedelta(days=3650):
            # Without a run, the stored time is in 1970.
            title = t("overview.maintenance_never")
        found.append(Incident("bus/maintenance", "error", title, address("workers"), "bus"))
    return found


async def _bus(view: View) -> list[Incident]:
    t = view.t
    found: list[Incident] = []
    for one in sorted(await view.status(), key=lambda one: -one.dmq):
        if one.dmq:
            of = {"queue": one.queue, "consumer": one.consumer}
            title = t("overview.dead_alert", **of, count=count_of([one.dmq]))
            href = address("bus", "queues", one.queue, "messages", consumer=one.consumer,
                           state="dead")  # fmt: skip
            key, since = f"bus/dead/{one.queue}/{one.consumer}", None
            if len(found) < MAX_DATED:
                first = await view.rows(DEAD, of, age=10, is_descending=False, limit=1)
                since = first[0]["died_at"] if first else None
            found.append(Incident(key, "warning", title, href, "bus", since=since))
    stuck = await view.rows(STUCK_SAGAS, age=5)
    if stuck:
        count = f"{len(stuck)}{'+' if len(stuck) >= MAX_SAGAS_COUNTED else ''}"
        href = address("bus", "sagas", state="stuck")
        if len(stuck) == 1:
            href = address("bus", "sagas", stuck[0]["id"])
        since = min(one["created_at"] for one in stuck)
        title = t("overview.saga_alert", count=count)
        key, body = "bus/sagas/stuck", stuck[0]["error"] or ""
        found.append(Incident(key, "error", title, href, "bus", body, since=since))
    return found
