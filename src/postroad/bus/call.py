"""A call of the bus as a value, and the client methods that are derived from it.

A call is written once, as a function that returns a `Call`: its signature and docstring are those
of the methods of `Bus` and `AsyncBus`, which `Methods` derives from it. No input or output here.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, update_wrapper
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    get_origin,
    overload,
)

from postroad.blocking import finish
from postroad.bus import rows
from postroad.bus.decoding import BadRow, Undecodable, log_undecodable
from postroad.bus.payload import Payload
from postroad.bus.rows import Row

if TYPE_CHECKING:
    from postroad.bus.runner import AsyncRunner

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

# Parameters whose type the server cannot derive from the text of a value.
_CASTS = {
    "iids": "text[]",
    "qnames": "text[]",
    "tokens": "bigint[]",
    "counts": "bigint[]",
    "totals": "float8[]",
    "payload": "regtype",
    "steps": "jsonb",
    "data": "jsonb",
    "since": "timestamptz",
    "until": "timestamptz",
}


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One statement, or several in one transaction.

    Attributes:
        text: the statement.
        parameters: its parameters.
        read: how the rows are read.
        queue: the queue of the call, for errors.
        consumer: the consumer of the call, for errors.
        remove: builds the call that dead-letters a message which cannot be decoded; None drops it.
        is_atomic: it must not be committed before its result has been read.
        wakes: queues whose workers are notified after it.
        reshapes: the queue whose payload may be different afterwards.
        makes: the payload of the new queue, whose name is the result.
        needs_session: it depends on the session of the caller's connection.
        parts: the calls of a transaction, instead of a statement; `read` joins their results.
    """

    text: str
    parameters: Sequence[object]
    read: Callable[[list[Row]], T]
    queue: str | None = None
    consumer: str | None = None
    remove: Callable[[BadRow], Call[Any] | None] | None = None
    is_atomic: bool = False
    wakes: Sequence[str] = ()
    reshapes: str | None = None
    makes: Payload | None = None
    needs_session: bool = False
    parts: Sequence[Call[Any]] = ()

    def unflushed(self) -> Call[T]:
        """Return this call with a commit that does not wait for the disk; a crash may lose it."""
        return replace(self, text=f"{self.text}, set_config('synchronous_commit', 'off', true)")

    def removals(self, error: Undecodable) -> Iterator[Call[Any]]:
        """Build the calls that dead-letter undecodable messages; raise the error without one."""
        if self.remove is None:
            raise error
        for bad in error.bad:
            facts = {"queue": self.queue, "consumer": self.consumer}
            log_undecodable(logger, bad, facts)
            removal = self.remove(bad)
            if removal is not None:
                yield removal


@dataclass(frozen=True, slots=True)
class OfQueue(Generic[T]):
    """A call that depends on a queue's payload; `otherwise` is used for an unknown queue."""

    queue: str
    build: Callable[[Payload], Call[T]]
    otherwise: Payload | None = None


@dataclass(frozen=True, slots=True)
class Procedure(Generic[T]):
    """Several calls, one after the other; `work` gets the runner of the bus."""

    work: Callable[[AsyncRunner], Coroutine[Any, Any, T]]


AnyCall: TypeAlias = Call[T] | OfQueue[T] | Procedure[T]


def sql(result: type[T], name: str, /, **arguments: object) -> Call[T]:
    """Build the call of a function of schema mbus with named arguments."""
    read: Callable[[list[Row]], Any] = rows.value
    if result is NoneType:
        read = rows.nothing
    elif get_origin(result) is list:
        read = rows.values
    return Call(f"select {named(name, *arguments)}", tuple(arguments.values()), read)


def listed(
    fact: type[T],
    source: str,
    *values: object,
    queue: str | None = None,
    consumer: str | None = None,
) -> Call[list[T]]:
    """Build the call that selects the fields of a dataclass."""
    return Call(rows.select(fact, source), values, rows.facts(fact), queue, consumer)


@lru_cache(maxsize=256)
def named(name: str, *parameters: str) -> str:
    """Return the text of a function call: `mbus.name(parameter => %s, …)`."""
    casts = {each: f"::{cast}" for each, cast in _CASTS.items()}
    listed = ", ".join(f"{each} => %s{casts.get(each, '')}" for each in parameters)
    return f"mbus.{name}({listed})"


class Blocking:
    """A client whose methods block."""


class Awaiting:
    """A client whose methods are awaited."""


class Method(Generic[P, T]):
    """A call as a method of a client; the class of the client decides whether it is awaited.

    Type checkers use this class; `Methods` puts a function in its place.
    """

    def __init__(self, build: Callable[P, AnyCall[T]]) -> None:
        self.build = build

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: object, owner: type) -> Any:
        return self


class Methods:
    """Base of clients: builds a call for each `Method` and runs it with `self._run`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if issubclass(cls, Blocking | Awaiting):
            for name in [name for each in reversed(cls.__mro__) for name in vars(each)]:
                found = getattr(cls, name)
                if isinstance(found, Method):
                    setattr(cls, name, _method(found.build, awaits=issubclass(cls, Awaiting)))


def _method(build: Callable[..., AnyCall[Any]], *, awaits: bool) -> Callable[..., Any]:
    def blocking(self: Any, /, *arguments: Any, **named: Any) -> Any:
        return finish(self._run(build(*arguments, **named)))

    async def awaiting(self: Any, /, *arguments: Any, **named: Any) -> Any:
        return await self._run(build(*arguments, **named))

    return _described(awaiting if awaits else blocking, build)


def _described(method: F, build: Callable[..., object]) -> F:
    """Give a method the docstring and the signature of its builder, with the result of the call."""
    update_wrapper(method, build)
    signature = inspect.signature(build)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    result = re.sub(r"^\w+\[(.*)\]$", r"\1", str(signature.return_annotation))
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[this, *signature.parameters.values()], return_annotation=result
    )
    return method
