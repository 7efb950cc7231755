"""Readers of the rows that calls return. Pure, like the calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeAlias, TypeVar

from postroad.bus import payload as payloads
from postroad.bus.payload import Payload

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]


def select(row: type, source: str) -> str:
    """Select the columns for the fields of a dataclass, in its order, by name."""
    # The names come from classes and quoted identifiers, never from a caller.
    return f"select {', '.join(field.name for field in fields(row))} from {source}"  # noqa: S608


def select_batch(row: type, source: str) -> str:
    """Select messages as `batch_<q>_by_<c>` and `leasen_<q>_by_<c>` return them.

    Headers without `enqueue_time` are those that the server would add; see `Message.headers`.
    """
    return select(row, source).replace(
        " headers,", " coalesce(headers::text, constants) as headers,"
    )


def nothing(_: list[Row]) -> None:
    """Read nothing: the function returns void."""
    return


def value(rows: list[Row]) -> Any:
    """Read a single value."""
    return rows[0][0]


def values(rows: list[Row]) -> list[Any]:
    """Read a single array; null is empty."""
    return list(rows[0][0] or ())


def messages(payload: Payload, kind: Callable[..., T]) -> Callable[[list[Row]], list[T]]:
    """Return the reader of delivered messages of a queue with this payload."""
    load = payloads.mapping if payload == "hstore" else None

    def read(rows: list[Row]) -> list[T]:
        if not rows:
            return []
        # By columns, because few of them need a conversion.
        columns: list[Any] = list(zip(*rows, strict=True))
        columns[5] = [tuple(each) if each else () for each in columns[5]]
        for place in (6, 7):
            columns[place] = [each or {} for each in columns[place]]
        if load is not None:
            columns[8] = map(load, columns[8])
        return list(map(kind, *columns))

    return read


def facts(fact: Any) -> Callable[[list[Row]], list[Any]]:
    """Return the reader of rows whose columns are the fields of a dataclass."""
    parsed = [each.name for each in fields(fact) if each.name in ("headers", "properties")]

    def read(rows: list[Row]) -> list[Any]:
        found = [fact(*row) for row in rows]
        if not parsed:
            return found
        mapping = payloads.mapping
        return [
            replace(one, **{name: mapping(getattr(one, name)) for name in parsed}) for one in found
        ]

    return read
