"""What a connection knows of queues: where the bus keeps each of them. Learnt once, forgotten on
demand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from psycopg.rows import TupleRow

__all__ = ["COLUMNS", "Route", "route_of"]

COLUMNS = "id, name, bus_name, is_temporary, levels, message_ttl, expires_after"


@dataclass(frozen=True, slots=True)
class Route:
    """A queue and its place on the bus."""

    id: int
    name: str
    bus_name: str
    is_temporary: bool
    levels: tuple[int, ...]
    message_ttl: timedelta | None
    expires_after: timedelta | None

    @property
    def bus_names(self) -> list[str]:
        """The bus queues to take from, the most urgent first."""
        return [self.level_name(level) for level in (*self.levels, 0)]

    def level_name(self, level: int) -> str:
        """Give the bus queue of a priority."""
        return f"{self.bus_name}_{level}" if level else self.bus_name


def route_of(rows: list[TupleRow]) -> Route | None:
    """Read what declare_queue, find_queue and add_level give."""
    if not rows or rows[0][0] is None:
        return None
    number, name, bus_name, is_temporary, levels, message_ttl, expires_after = rows[0]
    return Route(number, name, bus_name, is_temporary, tuple(levels), message_ttl, expires_after)
