"""W3C trace context: one line that follows a request through posts, handlers and components.

```
request, traceparent: 00-<trace>-<span>-01
   └─ post: header traceparent of the message, same trace, new span
        └─ handler: its posts have the same trace again
```

Handlers run inside `following(…)`; posts made there continue the trace. The carrier is read only
when a message is posted. Without a trace no header is added. `use(source)` adds another source of
the current span, such as OpenTelemetry.

SQL that posts takes the trace from a setting of the transaction, see `mbus.trace_headers()`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

HEADER = "traceparent"
# Appended to `select schema.function(…)`: passes the trace (the parameter is `line()`) to SQL, for
# this transaction only and before the function is called.
FOLLOWED = " from set_config('postroad.traceparent', %s, true)"
_SHAPE = re.compile(r"^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


class _Carrier(Protocol):
    @property
    def headers(self) -> Mapping[str, str | None]: ...


_followed: ContextVar[_Carrier | str | None] = ContextVar("postroad_trace", default=None)
_sources: list[Callable[[], str | None]] = []
# Records a post to a queue and returns the message's trace; see postroad.bus.spans.
post_span: Callable[[str], str | None] | None = None


def new() -> str:
    """Begin a trace."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def current() -> str | None:
    """Return the trace context of the current request or message; None if there is none."""
    for source in _sources:
        if (found := source()) is not None:
            return found
    followed = _followed.get()
    if followed is None or isinstance(followed, str):
        return followed
    given = followed.headers.get(HEADER)
    return given if given is not None and _SHAPE.match(given) else None


def line() -> str:
    """Return the trace as a text for SQL; empty if there is none."""
    return current() or ""


@contextmanager
def following(what: _Carrier | str | None) -> Iterator[None]:
    """Continue the trace of a message, or of a `traceparent` line, in posts made inside."""
    if isinstance(what, str) and not _SHAPE.match(what):
        what = None
    token = _followed.set(what)
    try:
        yield
    finally:
        _followed.reset(token)


def follow(what: _Carrier | None) -> None:
    """Do the same for the rest of this task or thread, in loops over messages."""
    _followed.set(what)


def stamped(
    headers: Mapping[str, str | None] | None, queue: str
) -> Mapping[str, str | None] | None:
    """Return the headers of a message to a queue with the current trace, unless they have one."""
    if (not _sources and _followed.get() is None) or (headers is not None and HEADER in headers):
        return headers
    if post_span is not None and (line := post_span(queue)) is not None:
        return {**(headers or {}), HEADER: line}
    parent = current()
    if parent is None:
        return headers
    _, trace, _, flags = parent.split("-")
    return {**(headers or {}), HEADER: f"00-{trace}-{secrets.token_hex(8)}-{flags}"}


def use(source: Callable[[], str | None]) -> None:
    """Add a source of the current context."""
    _sources.append(source)


def open_telemetry() -> bool:
    """Follow OpenTelemetry's current span if its package is installed; return whether it is."""
    try:
        import opentelemetry.trace  # noqa: F401
    except ModuleNotFoundError:
        return False
    if _current_span not in _sources:
        use(_current_span)
    return True


def _current_span() -> str | None:
    from opentelemetry import trace

    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
