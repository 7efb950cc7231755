"""Continues the trace of a request, or starts a new one."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from postroad import trace


def given_trace(scope: Scope) -> str | None:
    """Return the header `traceparent` of a request as it was sent."""
    for name, value in scope["headers"]:
        if name == b"traceparent":
            return bytes(value).decode("latin-1")
    return None


class TraceContext:
    """ASGI middleware: the header `traceparent` is followed while the request is served."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve inside the trace."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with trace.following(given_trace(scope) or trace.new()):
            await self.app(scope, receive, send)
