"""Continues the trace of a request, or starts a new one."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad import trace


class TraceContext:
    """ASGI middleware: the header `traceparent` is followed while the request is served."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve inside the trace."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("traceparent")
        with trace.following(given or trace.new()):
            await self.app(scope, receive, send)
