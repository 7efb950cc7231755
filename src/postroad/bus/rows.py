"""Ways to read the rows that calls return. Pure, like the calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeAlias, TypeVar

from postroad.bus import payload as payloads
from postroad.bus.message import LeasedMessage, Message
from postroad.bus.payload import Payload
from postroad.bus.status import DeadMessage

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]


def select(row: type, source: str) -> str:
    """Select the columns that a dataclass is made of, in its order, by name."""
    # The names come from classes and quoted identifiers, never from a caller.
    return f"select {', '.join(field.name for field in fields(row))} from {source}"  # noqa: S608


def nothing(_: list[Row]) -> None:
    """Read nothing: the function returns void."""
    return


def value(rows: list[Row]) -> Any:
    """Read the one value."""
    return rows[0][0]


def first(rows: list[Row]) -> Any:
    """Read the one value, or None when there is no row."""
    return rows[0][0] if rows else None


def values(rows: list[Row]) -> list[Any]:
    """Read the one array; null is empty."""
    return list(rows[0][0] or ())


def messages(payload: Payload) -> Callable[[list[Row]], list[Message]]:
    """Give the reader of delivered messages of a queue with this payload."""
    load = payloads.loader(payload)

    def read(rows: list[Row]) -> list[Message]:
        return [
            Message(
                number,
                added,
                iid,
                delayed_until,
                expires,
                tuple(received) if received else (),
                headers or {},
                properties or {},
                data if load is None else load(data),
            )
            for (
                number,
                added,
                iid,
                delayed_until,
                expires,
                received,
                headers,
                properties,
                data,
            ) in rows
        ]

    return read


def message(payload: Payload) -> Callable[[list[Row]], Message | None]:
    """Give the reader of the one message or none."""
    read = messages(payload)
    return lambda rows: next(iter(read(rows)), None)


def leased_messages(payload: Payload) -> Callable[[list[Row]], list[LeasedMessage]]:
    """Give the reader of leased messages of a queue with this payload."""
    load = payloads.loader(payload)

    def read(rows: list[Row]) -> list[LeasedMessage]:
        return [
            LeasedMessage(
                number,
                added,
                iid,
                delayed_until,
                expires,
                tuple(received) if received else (),
                headers or {},
                properties or {},
                data if load is None else load(data),
                token,
                attempt,
                leased_until,
            )
            for (
                number,
                added,
                iid,
                delayed_until,
                expires,
                received,
                headers,
                properties,
                data,
                token,
                attempt,
                leased_until,
            ) in rows
        ]

    return read


def facts(fact: type[T]) -> Callable[[list[Row]], list[T]]:
    """Give the reader of rows whose columns are the fields of a dataclass."""
    return lambda rows: [fact(*row) for row in rows]


def dead_messages(rows: list[Row]) -> list[DeadMessage]:
    """Read rows of view mbus.dead."""
    mapping = payloads.mapping
    return [
        replace(dead, headers=mapping(dead.headers), properties=mapping(dead.properties))
        for dead in (DeadMessage(*row) for row in rows)
    ]
