"""W3C trace context: one line that follows a request through posts, handlers and rooms.

```
request, traceparent: 00-<trace>-<span>-01
   └─ post: header traceparent of the message, same trace, new span
        └─ handler: what it posts has the same trace again
```

Whoever handles something says so with `following(…)`; posts made inside carry the trace on. What is
followed is looked into only when something is posted, so that it costs nothing otherwise. Without
anything to follow no header is added. `use(source)` lets OpenTelemetry, where it is installed, say
which span is the current one.

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
# Behind `select room.function(…)`: in the same statement, and before the function is called, SQL is
# told the trace (its parameter is `line()`), for this transaction only.
FOLLOWED = " from set_config('postroad.traceparent', %s, true)"
_SHAPE = re.compile(r"^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


class _Carrier(Protocol):
    @property
    def headers(self) -> Mapping[str, str | None]: ...


_followed: ContextVar[_Carrier | str | None] = ContextVar("postroad_trace", default=None)
_sources: list[Callable[[], str | None]] = []


def new() -> str:
    """Begin a trace."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def current() -> str | None:
    """Return the trace context of what is being handled; None when nothing is followed."""
    for source in _sources:
        if (found := source()) is not None:
            return found
    followed = _followed.get()
    if followed is None or isinstance(followed, str):
        return followed
    given = followed.headers.get(HEADER)
    return given if given is not None and _SHAPE.match(given) else None


def line() -> str:
    """Return the same for SQL, which knows no setting without a value: empty for none."""
    return current() or ""


@contextmanager
def following(what: _Carrier | str | None) -> Iterator[None]:
    """Let posts made inside belong to the trace of a message, or of a `traceparent` line."""
    if isinstance(what, str) and not _SHAPE.match(what):
        what = None
    token = _followed.set(what)
    try:
        yield
    finally:
        _followed.reset(token)


def follow(what: _Carrier | None) -> None:
    """Do so for the rest of this task or thread: for loops that handle one thing after another."""
    _followed.set(what)


def stamped(headers: Mapping[str, str | None] | None) -> Mapping[str, str | None] | None:
    """Give a message's headers the trace on which it is posted, unless they have one."""
    if not _sources and _followed.get() is None:
        return headers
    parent = current()
    if parent is None or (headers is not None and HEADER in headers):
        return headers
    _, trace, _, flags = parent.split("-")
    return {**(headers or {}), HEADER: f"00-{trace}-{secrets.token_hex(8)}-{flags}"}


def use(source: Callable[[], str | None]) -> None:
    """Ask this, too, which context is the current one."""
    _sources.append(source)


def open_telemetry() -> bool:
    """Follow OpenTelemetry's current span where its package is installed; tell whether it is."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return False

    def source() -> str | None:
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"

    use(source)
    return True
