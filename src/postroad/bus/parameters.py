"""Names and parameters of calls: checked and adapted before they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from postroad.bus.errors import ForeignIid, InvalidArgument, NameTooLong
from postroad.bus.hstore import Hstore, Untyped, array_literal, dump

Hstores: TypeAlias = Hstore | Sequence[Hstore] | None

# A number means seconds.
Duration: TypeAlias = timedelta | float

IDENTIFIER_BYTES = 63
BEGINNING, END = Untyped("-infinity"), Untyped("infinity")


@lru_cache(maxsize=4096)
def function(*parts: str) -> str:
    """Name a function of a queue: `function("consumen", "orders", "by", "billing")`."""
    name = "_".join(parts)
    if len(name.encode()) > IDENTIFIER_BYTES:
        # The server would truncate the name and might find another queue's function.
        raise NameTooLong(
            f"{name} is longer than {IDENTIFIER_BYTES} bytes", hint="shorten the name"
        )
    return 'mbus."' + name.replace('"', '""') + '"'


def queue_of(iid: str) -> str:
    """Return the queue of an iid. Raises ForeignIid for an invalid iid."""
    queue, dot, _ = iid.partition(".")
    if not (queue and dot):
        raise ForeignIid(f"{iid!r} is not an iid", hint="use the form orders.4711@k3f9q2")
    return queue


def length(name: str, value: Duration) -> timedelta:
    """Return a duration as timedelta. Raises InvalidArgument for any other value."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(
            f"{name} is not a duration: {value!r}", hint="pass a timedelta or seconds"
        )
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError) as error:
        raise InvalidArgument(f"{name}: {error}", hint="pass a timedelta or seconds") from error


def length_or_none(name: str, value: Duration | None) -> timedelta | None:
    """Return a duration as timedelta, None as None."""
    return None if value is None else length(name, value)


def zoned(name: str, moment: datetime | None) -> datetime | None:
    """Return a datetime with time zone. Raises InvalidArgument for a naive one."""
    if moment is not None and moment.utcoffset() is None:
        raise InvalidArgument(
            f"{name} has no time zone", hint="use datetime.now(UTC) or another zoned datetime"
        )
    return moment


def hstore(name: str, value: Hstore | None) -> str | None:
    """Adapt headers or properties. Raises InvalidArgument if they are not text."""
    try:
        return None if value is None else dump(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"{name}: {error}", hint="pass strings as keys and values") from error


def hstores(name: str, value: Hstores, start: int, count: int) -> str | None:
    """Adapt a slice of headers or properties: one mapping for all, or one per message."""
    if value is None:
        return None
    if isinstance(value, Sequence):
        return array_literal(hstore(name, item) for item in value[start : start + count])
    return array_literal([hstore(name, value)])
