"""Code shared by both workers: settings, handlers, and the outcome of a handler. Pure.

```
transaction mode   taken ──handlers return──> committed: consumed together with their work
                     └──a handler raises──> rolled back; the failing message is rejected,
                                            the others are handled again, in smaller batches
lease mode         leased ──handler returns──> acked        (heartbeat extends meanwhile)
                     ├──handler raises──> nacked: delayed or dmq
                     └──lease lost──> handler cancelled (async) or notified (`message.lost`)
```

When a worker process dies, its messages are delivered again: in transaction mode immediately, in
lease mode when the leases expire. So a handler may run twice for a message, but its work in the
database is committed once.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast

import psycopg

from postroad.bus.calls import LEASE_DEFAULT
from postroad.bus.errors import ConsumerNotFound, InvalidArgument
from postroad.bus.message import LeasedMessage, Message
from postroad.bus.outcome import Park, Retry
from postroad.bus.parameters import Duration, length
from postroad.bus.polling import POLL_INTERVAL_DEFAULT
from postroad.bus.status import Consumer

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Message)
Mode: TypeAlias = Literal["transaction", "lease"]

# Maximum: fewer messages are taken or leased ahead while the handler is slow.
PREFETCH_DEFAULT = 300
MAX_CONFLICTS = 10
ERROR_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of a worker.

    Attributes:
        poll_interval: pause between two probes for new messages; default 100 ms.
        maintenance_interval: pause between two maintenance calls; None if other processes run
            maintenance; default half a second.
        grace: time that handlers have to finish after `stop` before their messages are given
            back; default 30 s.
        listen: use NOTIFY; turn it off behind a transaction-mode pooler; default on.
        ack_delay: longest time that a finished leased message waits to be acked together with
            others; default 20 ms.
        ack_batch: number of finished messages that are acked without waiting; default 200.
    """

    poll_interval: timedelta = POLL_INTERVAL_DEFAULT
    maintenance_interval: timedelta | None = timedelta(milliseconds=500)
    grace: timedelta = timedelta(seconds=30)
    listen: bool = True
    ack_delay: timedelta = timedelta(milliseconds=20)
    ack_batch: int = 200


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and the messages that it handles."""

    queue: str
    consumer: str
    function: Callable[..., Any]
    mode: Mode
    concurrency: int
    prefetch: int
    ttl: timedelta
    connections: int | None = None
    batch: int | None = None

    @property
    def facts(self) -> dict[str, str]:
        """The fields of its log lines."""
        return {"queue": self.queue, "consumer": self.consumer}


# Few messages lose their leases, and an event costs as much as the rest of a message.
_creating = threading.Lock()


@dataclass(frozen=True, slots=True)
class HeldMessage(LeasedMessage):
    """A leased message that is being handled; the event `lost` is set when its lease is lost."""

    _lost: threading.Event | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def lost(self) -> threading.Event:
        """The event that is set when the lease is lost."""
        with _creating:
            if self._lost is None:
                object.__setattr__(self, "_lost", threading.Event())
        return cast("threading.Event", self._lost)

    @property
    def is_lost(self) -> bool:
        """Whether the lease is lost."""
        return self._lost is not None and self._lost.is_set()


class MessageBatch(list[M]):
    """The messages of one call of a batch handler."""

    def __init__(self, messages: Iterable[M]) -> None:
        super().__init__(messages)
        self.failures: dict[int, BaseException] = {}

    def fail(self, message: M, error: BaseException) -> None:
        """Fail one message when the handler returns; `Retry` and `Park` decide what follows."""
        self.failures[message.id] = error


class HandlerRegistry:
    """The handlers of a worker."""

    awaits: ClassVar[bool]

    def __init__(self) -> None:
        self._handlers: list[Handler] = []

    @property
    def _queues(self) -> list[str]:
        return sorted({handler.queue for handler in self._handlers})

    def _use_consumers(self, consumers: Iterable[Consumer]) -> None:
        """Adapt the handlers to the contracts of their consumers.

        Raises ConsumerNotFound, and InvalidArgument for leases of a consumer with a cursor.
        """
        contracts = {(each.queue, each.consumer): each.contract for each in consumers}
        for place, handler in enumerate(self._handlers):
            contract = contracts.get((handler.queue, handler.consumer))
            if contract is None:
                raise ConsumerNotFound(
                    f"queue {handler.queue} has no consumer {handler.consumer}",
                    hint="create both before the worker starts",
                    **handler.facts,
                )
            if contract == "cursor":
                if handler.mode == "lease":
                    raise InvalidArgument(
                        "a consumer with a cursor has no leases",
                        hint="use mode transaction",
                        **handler.facts,
                    )
                # One transaction at a time moves the cursor; others would find nothing to take.
                self._handlers[place] = replace(handler, connections=1)

    def _check(self, handler: Handler) -> None:
        """Raise InvalidArgument for impossible settings."""
        if inspect.iscoroutinefunction(handler.function) != self.awaits:
            raise InvalidArgument(
                f"{handler.function!r} is {'not ' if self.awaits else ''}a coroutine function",
                hint="write `async def` for AsyncWorker and `def` for Worker",
                queue=handler.queue,
            )
        for name in ("concurrency", "prefetch", "connections", "batch"):
            value = getattr(handler, name)
            if value is not None and value < 1:
                raise InvalidArgument(f"{name} must be at least 1", queue=handler.queue)
        if handler.mode not in ("transaction", "lease"):
            raise InvalidArgument(f"unknown mode {handler.mode!r}", hint="use transaction or lease")
        if handler.connections is not None and handler.mode == "lease":
            raise InvalidArgument(
                "connections is only for mode transaction", hint="remove it", queue=handler.queue
            )
        if handler.ttl <= timedelta(0):
            raise InvalidArgument("ttl must be positive", queue=handler.queue)

    def handler(
        self,
        queue: str,
        consumer: str = "default",
        mode: Mode = "transaction",
        concurrency: int = 1,
        prefetch: int | None = None,
        ttl: Duration = LEASE_DEFAULT,
        connections: int | None = None,
        batch: int | None = None,
    ) -> Callable[[F], F]:
        """Register a function for the messages of a consumer.

        In mode `transaction` it is called with the message and the connection whose commit
        consumes it; up to `prefetch` messages (default 300) share a transaction, fewer while the
        function is slow: a transaction should last a tenth of a second. Concurrent calls share
        transactions, but from its first statement until it returns a call has its transaction to
        itself. Four connections are used, more while the function is slow, up to `connections`
        (default: as many as `concurrency`).

        In mode `lease` it is called with the message, which is leased for `ttl` and extended while
        the function runs; up to `prefetch` more (default 300) wait leased, fewer while the function
        is slow. One that waits for a second, or until the worker is stopped, is given back and no
        attempt is counted. `concurrency` messages are handled in parallel.

        With `batch` it is called with a `MessageBatch`, a list of up to `batch` messages: each call
        in its own transaction, or with all messages leased. `messages.fail(message, error)` fails
        one of them; the others are consumed when the function returns. Its result is ignored.

        Any exception of the function is a failed attempt; `Retry` and `Park` decide what follows;
        after a deadlock the function is called again. If it returns a value and the message was
        posted with `request`, the value is the answer: sent in its transaction, or before its ack.
        Raises InvalidArgument.
        """

        def register(function: F) -> F:
            limit = (batch or PREFETCH_DEFAULT) if prefetch is None else prefetch
            span = length("ttl", ttl)
            handler = Handler(
                queue, consumer, function, mode, concurrency, limit, span, connections, batch
            )
            self._check(handler)
            self._handlers.append(handler)
            return function

        return register


@dataclass(frozen=True, slots=True)
class Verdict:
    """Next state of a message whose handler raised; delay None means the consumer's backoff."""

    delay: timedelta | None
    error: str
    dead_letter: bool
    is_failure: bool

    def given(self) -> dict[str, Any]:
        """Return the arguments of `nack` and `reject`."""
        return {"delay": self.delay, "error": self.error, "dead_letter": self.dead_letter}


def is_conflict(error: BaseException) -> bool:
    """Check whether a handler failed because of a deadlock or a serialization failure."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
            return True
        cause = cause.__cause__
    return False


def judge(error: BaseException) -> Verdict:
    """Return the next state of a message from the error of its handler."""
    if isinstance(error, Retry):
        return Verdict(error.after, str(error), dead_letter=False, is_failure=False)
    if isinstance(error, Park):
        return Verdict(None, error.reason, dead_letter=True, is_failure=False)
    # NUL cannot be stored as text.
    text = f"{type(error).__name__}: {error}".replace("\x00", "�")[:ERROR_CHARACTERS]
    return Verdict(None, text, dead_letter=False, is_failure=True)


def log_verdict(
    logger: logging.Logger,
    handler: Handler,
    message: Message,
    verdict: Verdict,
    error: BaseException,
) -> None:
    """Log a failure with its traceback, `Retry` and `Park` as information; never payloads."""
    facts = {**handler.facts, "iid": message.iid}
    if verdict.is_failure:
        logger.warning("handler_failed", extra=facts, exc_info=error)
    else:
        event = "message_parked" if verdict.dead_letter else "message_retried"
        logger.info(event, extra={**facts, "reason": verdict.error})
