"""A call of the bus as a value, and the client methods that are derived from it.

A call is written once, as a function that returns a `Call`: its signature and docstring are those
of the methods of `Bus` and `AsyncBus`, which `blocking` and `awaiting` derive from it. This module
does no input or output.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, update_wrapper
from types import NoneType
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, get_origin

from postroad.bus import rows
from postroad.bus.decoding import BadRow, Undecodable, log_undecodable
from postroad.bus.payload import Payload
from postroad.bus.rows import Row

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

# Parameters whose type the server cannot derive from the text of a value.
_CASTS = {
    "iids": "text[]",
    "qnames": "text[]",
    "tokens": "bigint[]",
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
        makes: the payload of the queue whose name is the result.
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


AnyCall: TypeAlias = Call[T] | OfQueue[T]


def sql(result: type[T], name: str, /, **arguments: object) -> Call[T]:
    """Build the call of a function of schema mbus with named arguments."""
    read: Callable[[list[Row]], Any] = rows.value
    if result is NoneType:
        read = rows.nothing
    elif get_origin(result) is list:
        read = rows.values
    return Call(f"select {named(name, *arguments)}", tuple(arguments.values()), read)


@lru_cache(maxsize=256)
def named(name: str, *parameters: str) -> str:
    """Return the text of a function call: `mbus.name(parameter => %s, …)`."""
    casts = {each: f"::{cast}" for each, cast in _CASTS.items()}
    listed = ", ".join(f"{each} => %s{casts.get(each, '')}" for each in parameters)
    return f"mbus.{name}({listed})"


def blocking(build: Callable[P, AnyCall[T]]) -> Callable[Concatenate[Any, P], T]:
    """Make a method that builds a call and runs it with `self._run`."""

    def method(self: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
        return self._run(build(*arguments, **named))

    return _described(method, build)


def awaiting(build: Callable[P, AnyCall[T]]) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """Make a coroutine method that builds a call and awaits `self._run`."""

    async def method(self: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
        return await self._run(build(*arguments, **named))

    return _described(method, build)


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
