"""Lists that are read as a whole: settings, or rows of several databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from postroad.operate.resource import Page, Query, Resource, Row


@dataclass(frozen=True, slots=True)
class Rows:
    """Reads all rows with `read`, then filters, sorts and pages them like a database."""

    read: Callable[[Any], Awaitable[Sequence[Row]]]

    async def page(self, resource: Resource, place: Any, query: Query) -> Page:
        """Read a page; `place` is passed to `read`."""
        sort, is_descending, limit = query.sort, query.is_descending, query.limit
        rows = [
            row
            for row in await self.read(place)
            if _matches(resource, row, query.filters)
            and all(row[column] in values for column, values in query.when.items())
        ]

        def rank(row: Row) -> tuple[Any, Any]:
            return row[sort], row[resource.key]

        filled = [row for row in rows if row[sort] is not None]
        empty = [row for row in rows if row[sort] is None]
        filled.sort(key=rank, reverse=is_descending)
        empty.sort(key=lambda row: row[resource.key], reverse=is_descending)
        if query.after is not None:
            *first, key = resource.start(sort, query.after)
            value = first[0] if first else key

            def is_after(rank: Any, start: Any) -> bool:
                return bool(rank < start if is_descending else rank > start)

            if value is None:
                filled = []
                empty = [row for row in empty if is_after(row[resource.key], key)]
            else:
                filled = [row for row in filled if is_after(rank(row), (value, key))]
        listed = filled + empty
        more = listed[limit - 1] if len(listed) > limit else None
        return Page(listed[:limit], None if more is None else resource.cursor(more, sort))


def _matches(resource: Resource, row: Row, filters: Mapping[str, Any]) -> bool:
    for one in resource.filters:
        if one.name not in filters:
            continue
        columns, value = one.columns or (one.name,), filters[one.name]
        if one.is_search:
            text = " ".join(str(row[name]) for name in columns if row[name] is not None)
            if str(value).lower() not in text.lower():
                return False
        elif row[columns[0]] not in resource.wanted(one, value):
            return False
    return True
