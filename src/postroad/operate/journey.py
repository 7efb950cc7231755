"""Journeys: one search over all components, and the path of the results in order of time.

A resource that declares a `Journey` takes part. Its rows are found by the texts that users search
for, and their links (a trace, a process, an iid) are searched in all resources, too:

```
4711 ──> message of queue orders ──trace──> exchange message ──process──> process, reply
```
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.errors import InvalidSchemaName, UndefinedTable
from psycopg.rows import dict_row

from postroad.operate.resource import Column, Resource, Row

# Rows of one resource per search, and of the whole path.
MAX_FOUND = 100
MAX_STEPS = 300
# The columns of a step that are named by the journey of its resource.
_DECLARED = ("at", "until", "holder", "place", "attempts", "error")
_TRACE = re.compile(r"^00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$")


# The fields of each step that are shown; the list has no rows of its own.
STEPS = Resource(
    "journey.steps", "step", "", "Show a path across components.",
    (
        Column("at", "At", "Когда", "moment"),
        Column("component", "Component", "Компонент"),
        Column("kind", "Kind", "Вид", is_listed=False),
        Column("id", "Object", "Объект", "code"),
        Column("place", "Where", "Где"),
        Column("state", "State", "Состояние", "state"),
        Column("holder", "Held by", "Владелец", "code"),
        Column("until", "Until", "До", "moment"),
        Column("attempts", "Attempts", "Попытки", "number"),
        Column("error", "Error", "Ошибка"),
        Column("next", "Next", "Дальше"),
        Column("links", "Linked by", "Связи", "list", is_listed=False),
    ),
    is_descending=False,
)  # fmt: skip


class Search:
    """A search in rounds: `wanted` are the texts to look up next, `add` takes what was found."""

    def __init__(self, text: str) -> None:
        trace = _TRACE.match(text.strip())
        self.wanted = {trace[1] if trace else text.strip()} - {""}
        self._known: set[str] = set()
        self._steps: dict[tuple[str, str], Row] = {}

    def round(self) -> list[str]:
        """Return the texts to look up in every resource; empty at the end."""
        fresh = self.wanted - self._known if len(self._steps) < MAX_STEPS else set()
        self._known |= fresh
        return sorted(fresh)

    def add(self, resource: Resource, rows: Iterable[Row], language: str = "en") -> None:
        """Add rows of a resource as steps."""
        declared = resource.journey
        assert declared is not None  # noqa: S101 - only those that take part are searched
        for row in rows:
            links = [str(row[name]) for name in declared.links if row[name]]
            self.wanted |= set(links)
            state = str(row["state" if "state" in row else "status"]).lower()
            following = declared.next.get(state)
            step: Row = {name: row.get(getattr(declared, name)) for name in _DECLARED}
            identity = str(row[resource.row_name])
            step |= {
                "id": str(row[resource.label_name]),
                "identity": identity,
                "component": resource.component,
                "resource": resource.name,
                "kind": resource.noun,
                "state": state,
                "next": following and following[language == "ru"],
                "links": links,
            }
            self._steps[resource.name, identity] = step

    @property
    def steps(self) -> list[Row]:
        """The steps found so far, in order of time."""
        return sorted(
            self._steps.values(), key=lambda step: step["at"] or datetime.max.replace(tzinfo=UTC)
        )


def searched(*modules: ModuleType) -> list[Resource]:
    """Return the resources of components that take part."""
    declared = [one for module in modules for one in vars(module).values()]
    return [one for one in declared if isinstance(one, Resource) and one.journey is not None]


async def found(
    connection: AsyncConnection[Any], resource: Resource, texts: list[str]
) -> list[Row]:
    """Read the rows of a resource that have one of these texts; none if it is not installed."""
    declared = resource.journey
    assert declared is not None  # noqa: S101
    if declared.find is not None:
        return await declared.find(connection, texts)
    assert isinstance(resource.source, str)  # noqa: S101
    columns = sql.SQL(", ").join(sql.Identifier("r", one.name) for one in resource.columns)
    names = dict.fromkeys((*declared.keys, *declared.links))
    condition = sql.SQL(" or ").join(
        sql.SQL("{}::text = any (%(texts)s)").format(sql.Identifier("r", name)) for name in names
    )
    text = sql.SQL("select {} from {} r where {} order by {} desc limit {}").format(
        columns, sql.SQL(resource.source), condition, sql.Identifier("r", resource.key), MAX_FOUND
    )
    try:
        async with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(text, {"texts": texts})
            return await cursor.fetchall()
    except (UndefinedTable, InvalidSchemaName):
        return []
