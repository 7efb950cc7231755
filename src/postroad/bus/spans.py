"""OpenTelemetry spans of a message: post, wait, handle. The extra `otel` has the package.

```
post ──traceparent──> wait, handle    of the same trace, over any number of bridges
                         └─ post      of the handler: the same trace again
handle of a batch     a trace of its own, with a link to the post of each message
```

Without a call of `record` the bus calls the handlers directly, so spans have no cost.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeAlias

from postroad import trace
from postroad.bus.handlers import judge
from postroad.bus.message import Message

Function: TypeAlias = Callable[..., Any]

_LINE = re.compile(r"\btraceparent\W+(00(?:-[0-9a-f]+){3})")
_spans: Spans | None = None


def record(tracer_provider: Any = None) -> bool:
    """Record spans from now on, with the global tracer provider or this one.

    Workers that were started before are not changed. Posts continue OpenTelemetry's current span.
    Returns False if OpenTelemetry is not installed.
    """
    global _spans
    if not trace.open_telemetry():
        return False
    _spans = Spans(tracer_provider)
    trace.post_span = _spans.post
    return True


def handled(function: Function, queue: str, consumer: str) -> Function:
    """Return the handler with spans around it, or the handler itself if none are recorded."""
    return function if _spans is None else _spans.handler(function, queue, consumer)


@contextmanager
def carried(name: str, headers: object) -> Iterator[None]:
    """Record that messages are carried to another place, with a link to each.

    `headers` are those of all messages, as text or a list of texts.
    """
    if _spans is None:
        yield
    else:
        with _spans.linked(f"carry {name}", _LINE.findall(str(headers))):
            yield


class Spans:
    """Creates the spans of one tracer."""

    def __init__(self, tracer_provider: Any = None) -> None:
        from opentelemetry import trace as api
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api = api
        self._tracer = api.get_tracer("postroad", tracer_provider=tracer_provider)
        self._extract = TraceContextTextMapPropagator().extract

    def post(self, queue: str) -> str | None:
        """Record a post; return the traceparent of its message, None if the trace is not kept."""
        facts = {"messaging.system": "postroad", "messaging.destination.name": queue}
        kind = self._api.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(f"post {queue}", attributes=facts, kind=kind):
            return trace.current()

    def handler(self, function: Function, queue: str, consumer: str) -> Function:
        """Return the handler with spans around it."""
        name = f"handle {queue}"
        facts = {
            "messaging.system": "postroad",
            "messaging.destination.name": queue,
            "messaging.consumer.group.name": consumer,
        }

        def around(given: Any) -> Any:
            if isinstance(given, Message):
                return self._of_message(name, given, facts)
            return self.linked(name, [each.headers.get(trace.HEADER) for each in given], facts)

        @wraps(function)
        def blocking(given: Any, *others: Any) -> Any:
            with around(given):
                return function(given, *others)

        @wraps(function)
        async def awaiting(given: Any, *others: Any) -> Any:
            with around(given):
                return await function(given, *others)

        return awaiting if inspect.iscoroutinefunction(function) else blocking

    @contextmanager
    def _of_message(self, name: str, message: Message, facts: Mapping[str, Any]) -> Iterator[None]:
        parent = self._context(message.headers.get(trace.HEADER))
        attributes = {
            **facts, "messaging.message.id": message.iid, "postroad.attempt": message.attempts + 1
        }  # fmt: skip
        since = message.delayed_until or message.added
        if message.attempts == 0:
            began, now = _nanoseconds(since), _nanoseconds(datetime.now(UTC))
            wait = name.replace("handle", "wait", 1)
            span = self._tracer.start_span(
                wait, parent, attributes=attributes, start_time=min(began, now)
            )
            span.end(now)
        kind = self._api.SpanKind.CONSUMER
        with self._tracer.start_as_current_span(
            name, parent, attributes=attributes, kind=kind,
            record_exception=False, set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                yield
            except BaseException as error:
                if judge(error).is_failure:
                    span.record_exception(error)
                    span.set_status(self._api.StatusCode.ERROR, str(error))
                raise

    @contextmanager
    def linked(
        self, name: str, lines: Iterable[str | None], facts: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """Record a span with a link to each message."""
        found = [self._api.get_current_span(self._context(each)) for each in lines]
        contexts = [span.get_span_context() for span in found]
        links = [self._api.Link(each) for each in contexts if each.is_valid]
        kind = self._api.SpanKind.CONSUMER
        with self._tracer.start_as_current_span(name, attributes=facts, kind=kind, links=links):
            yield

    def _context(self, line: str | None) -> Any:
        return self._extract({trace.HEADER: line or ""})


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
