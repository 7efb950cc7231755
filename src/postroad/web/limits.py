"""Refuses a body that is larger than allowed, before it fills the memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroad.web.errors import BodyTooLarge
from postroad.web.problems import problem_of, problem_response

__all__ = ["BodyLimit"]


class BodyLimit:
    """ASGI middleware: 413 above `limit_bytes`, by the declared length or by what really comes.

    `is_limited` tells by path which requests it watches; uploads that are streamed to a file have
    a limit of their own.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit_bytes: int,
        is_limited: Callable[[str], bool] = lambda path: True,  # noqa: ARG005 - named for callers
    ) -> None:
        self.app = app
        self.limit_bytes = limit_bytes
        self.is_limited = is_limited

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] != "http" or not self.is_limited(scope["path"]):
            await self.app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self.limit_bytes:
            await self._refuse(scope, receive, send)
            return
        seen = 0
        has_answered = False

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.limit_bytes:
                raise _Exceeded
            return message

        async def unless_exceeded(message: Message) -> None:
            # The framework answers 400 when reading the body fails; the answer here says why.
            nonlocal has_answered
            if has_answered or seen <= self.limit_bytes:
                has_answered = True
                await send(message)

        with contextlib.suppress(_Exceeded):
            await self.app(scope, counted, unless_exceeded)
        if seen > self.limit_bytes and not has_answered:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure = BodyTooLarge(f"the body is larger than {self.limit_bytes} bytes")
        await problem_response(problem_of(failure))(scope, receive, send)


class _Exceeded(Exception):
    """More came than was allowed."""
