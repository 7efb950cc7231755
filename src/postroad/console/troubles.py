"""What is wrong right now, over all rooms, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postroad.console.markup import address, number
from postroad.console.pages import is_there
from postroad.console.view import View

__all__ = ["Trouble", "troubles"]

MAINTENANCE_LATE_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that a person should look at; `tone` is bad or note."""

    text: str
    href: str
    tone: str = "bad"


async def troubles(view: View) -> Sequence[Trouble]:
    """Collect what is wrong. Read-only, from looks that are shared."""
    t, house = view.t, view.house
    found: list[Trouble] = []
    if is_there("postroad.alerts"):
        from postroad.console.pages.alerts import open_alerts

        for alert in await open_alerts(view):
            tone = "bad" if alert.severity in ("error", "critical") else "note"
            found.append(Trouble(alert.title, address("alerts"), tone))
    for one in await view.look("services", house.services.read):
        if one.state in ("waiting", "lost"):
            text = t("overview.service_alert", service=one.name, state=t.state(one.state))
            found.append(Trouble(text, address("workers")))
    late = await view.look("maintenance", house.database.maintenance_age_seconds, 5)
    if late > MAINTENANCE_LATE_SECONDS:
        text = t("overview.maintenance_late", seconds=round(late))
        found.append(Trouble(text, address("workers")))
    dead: dict[str, int] = {}
    for status in await house.history.status():
        if status.dmq:
            dead[status.queue] = dead.get(status.queue, 0) + status.dmq
    for queue, count in sorted(dead.items(), key=lambda item: -item[1]):
        text = t("overview.dead_alert", queue=queue, consumer="*", count=number(count))
        found.append(
            Trouble(text, address("bus", "queues", queue, "messages", state="dead"), "note")
        )
    return found
