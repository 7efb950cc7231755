"""The bus queues of each Celery queue, cached per connection."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from psycopg.rows import TupleRow

from postroad.broker.link import Link

COLUMNS = "id, name, bus_name, is_temporary, levels, message_ttl, expires_after"


@dataclass(frozen=True, slots=True)
class Route:
    """A queue and its bus queues."""

    id: int
    name: str
    bus_name: str
    is_temporary: bool
    levels: list[int]
    message_ttl: timedelta | None
    expires_after: timedelta | None

    @property
    def bus_names(self) -> list[str]:
        """The bus queues to take from, the most urgent first."""
        return [self.level_name(level) for level in (*self.levels, 0)]

    def level_name(self, level: int) -> str:
        """Return the bus queue of a priority."""
        return f"{self.bus_name}_{level}" if level else self.bus_name


class Routes:
    """Queues by name; temporary ones are not cached."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: dict[str, Route] = {}

    def find(self, queue: str) -> Route | None:
        """Look up a queue, in the database only the first time."""
        known = self._known.get(queue)
        return known or self._read(f"select {COLUMNS} from broker.find_queue(%s)", queue)

    def forget(self, queue: str) -> None:
        """Read the queue from the database next time."""
        self._known.pop(queue, None)

    def declare(self, queue: str, is_temporary: bool, *times: timedelta | None) -> None:
        """Create a queue unless it exists; `times` are its message_ttl and expires_after."""
        text = f"select {COLUMNS} from broker.declare_queue(%s, %s, %s, %s)"
        self._read(text, queue, is_temporary, *times)

    def add_level(self, route: Route, level: int) -> Route:
        """Create the bus queue of a priority; the queue itself may have been deleted."""
        text = f"select {COLUMNS} from broker.add_level(%s, %s)"
        return self._read(text, route.name, level) or route

    def _read(self, text: str, *parameters: object) -> Route | None:
        rows: list[TupleRow] = self._link.run(text, parameters)
        if not rows or rows[0][0] is None:
            return None
        route = Route(*rows[0])
        if not route.is_temporary:
            self._known[route.name] = route
        return route
