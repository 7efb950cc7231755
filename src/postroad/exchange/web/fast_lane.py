"""A short way for the calls that come most often.

The application's middleware and routing cost more than the work of such a call. The lane calls the
same handler with the same request, and answers failures by the application's own table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from postroad import trace
from postroad.web import given_trace

__all__ = ["FastLane", "Handler"]

Handler = Callable[..., Awaitable[Response]]


class FastLane:
    """ASGI application in front of another: known paths go straight to their handlers.

    A path is exact, or has one part `*`, before its last one, which the handler gets as text.
    """

    def __init__(
        self, app: FastAPI, handlers: dict[tuple[str, str], Handler], limit_bytes: int
    ) -> None:
        self.app = app
        self._handlers = handlers
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or pass on what is not of the lane or declares no acceptable length."""
        handler: Handler | None = None
        values: tuple[str, ...] = ()
        if scope["type"] == "http":
            handler, values = self._find(scope["method"], scope["path"])
        if handler is None or not self._is_short(scope):
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        # Where none was given none is begun, unlike elsewhere: it would cost each event a header.
        with trace.following(given_trace(scope)):
            try:
                response = await handler(request, *values)
            except Exception as failure:  # noqa: BLE001 - answered by the table
                response = await self._failed(request, failure)
        await response(scope, receive, send)

    def _find(self, method: str, path: str) -> tuple[Handler | None, tuple[str, ...]]:
        handler = self._handlers.get((method, path))
        if handler is not None:
            return handler, ()
        front, _, last = path.rpartition("/")
        front, _, value = front.rpartition("/")
        return self._handlers.get((method, f"{front}/*/{last}")), (value,)

    def _is_short(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"content-length":
                return value.isdigit() and int(value) <= self._limit_bytes
        return False

    async def _failed(self, request: Request, failure: Exception) -> Response:
        for kind in type(failure).__mro__:
            handler = self.app.exception_handlers.get(kind)
            if handler is not None:
                answer = handler(request, failure)
                return await answer  # type: ignore[misc,no-any-return]
        raise failure
