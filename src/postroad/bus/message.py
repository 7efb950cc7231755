"""Messages as they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from postroad.bus.hstore import Hstore, parse

__all__ = ["Lease", "Leased", "LeasedMessage", "Message"]


@dataclass(frozen=True, slots=True)
class Message:
    """One consumer's copy of a message.

    Attributes:
        id: place in the queue; ascends in order of posting.
        added: when it was posted.
        iid: its name everywhere, for ever: `orders.4711@k3f9q2`.
        delayed_until: it was not to be delivered before; None without delay.
        expires: it is not delivered after; None if it never expires.
        received: who has received it already, where the queue keeps that.
        headers: seenby, source_db, destination, enqueue_time, and what the sender added.
        properties: what selectors look at.
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


class _ReadWhenAsked:
    """An hstore field that stays the server's text until somebody looks at it.

    Most handlers never look at headers, and reading them costs more than all the rest of a message.
    """

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, message: object | None, owner: type | None = None) -> Any:
        if message is None:
            return self
        value = self._slot.__get__(message, owner)
        if type(value) is str:
            value = parse(value)
            self._slot.__set__(message, value)
        return value

    def __set__(self, message: object, value: object) -> None:
        self._slot.__set__(message, value)

    def unread(self, message: object) -> Any:
        """Give what is stored, without reading it."""
        return self._slot.__get__(message)


for _name in ("headers", "properties"):
    setattr(Message, _name, _ReadWhenAsked(getattr(Message, _name)))


def unread(message: Message, name: str) -> Any:
    """Give a field as it is stored, to make another message of it."""
    field = getattr(type(message), name)
    return field.unread(message) if isinstance(field, _ReadWhenAsked) else getattr(message, name)


class Leased(Protocol):
    """What ack, nack and extend need to know of a message."""

    @property
    def iid(self) -> str:
        """Name of the message."""

    @property
    def token(self) -> int:
        """Fencing token of the lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease remembered elsewhere (in a table, a task's arguments) by its two numbers."""

    iid: str
    token: int


@dataclass(frozen=True, slots=True)
class LeasedMessage(Message):
    """A message held until `leased_until`; its token proves the holder's right to it."""

    token: int
    attempt: int
    leased_until: datetime

    @property
    def attempts(self) -> int:
        """How often this copy was tried before."""
        return self.attempt - 1
