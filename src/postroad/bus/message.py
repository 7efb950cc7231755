"""Messages as they arrive."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from postroad.bus.hstore import Hstore, parse


@dataclass(frozen=True, slots=True)
class Message:
    """One consumer's copy of a message.

    Attributes:
        id: position in the queue; ascends in order of posting.
        added: when it was posted.
        iid: its permanent, globally unique id: `orders.4711@k3f9q2`.
        delayed_until: earliest time of delivery; None without delay.
        expires: latest time of delivery; None if it never expires.
        received: ids of consumers that have received it, if the queue stores them.
        headers: seenby, source_db, destination, enqueue_time, and those of the sender.
        properties: values for selectors.
        data: the payload: a mapping (hstore), JSON value (jsonb), str (text) or bytes (bytea).
    """

    id: int
    added: datetime
    iid: str
    delayed_until: datetime | None
    expires: datetime | None
    received: tuple[int, ...]
    headers: Hstore
    properties: Hstore
    data: Any

    @property
    def attempts(self) -> int:
        """How often this copy was tried before."""
        return int(self.headers.get("attempts") or 0)


def _time_text(moment: datetime) -> str:
    """Write a time as the server does: without trailing zeros, and a zone of whole hours as +02."""
    return re.sub(r"(\.\d+?)0+(?=[+-])", r"\1", moment.isoformat(" ")).removesuffix(":00")


def _lazy(slot: Any) -> property:
    """Return an hstore field that is parsed on first access.

    Most handlers never read headers, and parsing them costs more than the rest of a message.
    """

    def read(message: Message) -> Any:
        value = slot.__get__(message)
        if type(value) is str:
            value = parse(value)
            if slot.__name__ == "headers":
                # The server leaves the time of posting to the client: it is `added` as text.
                value.setdefault("enqueue_time", _time_text(message.added))
            slot.__set__(message, value)
        return value

    return property(read, slot.__set__)


_SLOTS: dict[str, Any] = {name: getattr(Message, name) for name in ("headers", "properties")}
for _name, _slot in _SLOTS.items():
    setattr(Message, _name, _lazy(_slot))


def unread(name: str) -> Callable[[Message], Any]:
    """Return the function that reads headers or properties as they are stored."""
    found: Callable[[Message], Any] = _SLOTS[name].__get__
    return found


class Leased(Protocol):
    """The two values that identify a lease for ack, nack and extend."""

    @property
    def iid(self) -> str:
        """Iid of the message."""

    @property
    def token(self) -> int:
        """Fencing token of the lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was stored elsewhere: in a table, or the arguments of a task."""

    iid: str
    token: int


@dataclass(frozen=True, slots=True)
class LeasedMessage(Message):
    """A message held until `leased_until`; its token identifies the lease."""

    token: int
    attempt: int
    leased_until: datetime

    @property
    def attempts(self) -> int:
        """How often this copy was tried before."""
        return self.attempt - 1
