"""Limits of request bodies: permission to send one, size, and duration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroad.web.errors import BodyTooLarge, BodyTooSlow, TokenMissing, WebError
from postroad.web.problems import problem_of, problem_response
from postroad.web.tokens import bearer_token, hash_token, is_token_of

# The longest pause of a client that sends a body, and its lowest average rate.
MAX_PAUSE_SECONDS = 30.0
MIN_BYTES_PER_SECOND = 1_000


class TokenCheck:
    """ASGI middleware: 401 for a request below `prefix` without the token, its body unread.

    A dependency of FastAPI would be called only after the body was received.
    """

    def __init__(self, app: ASGIApp, token: str, prefix: str) -> None:
        self.app = app
        self._stored = hash_token(token)
        self._prefix = f"{prefix}/"
        # The description of the interface is public.
        self._open = (f"{prefix}/openapi.json", f"{prefix}/docs", f"{prefix}/docs/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        path = scope.get("path", "")
        is_open = path in self._open or path.startswith(self._open[-1])
        if scope["type"] == "http" and path.startswith(self._prefix) and not is_open:
            try:
                self._check(scope)
            except TokenMissing as refused:
                await _refuse(refused, scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        if not is_token_of(bearer_token(HTTPConnection(scope)), self._stored):
            raise TokenMissing("the token is unknown", hint="ask the administrator for one")


@dataclass
class BodyLimit:
    """ASGI middleware: 413 above `limit_bytes`, by the declared length or by what is received.

    `is_limited` selects requests by their path; uploads that are streamed to a file have a separate
    limit.
    """

    app: ASGIApp
    limit_bytes: int
    is_limited: Callable[[str], bool] = lambda path: True  # noqa: ARG005 - named for callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] != "http" or not self.is_limited(scope["path"]):
            await self.app(scope, receive, send)
            return
        failure = BodyTooLarge(f"the body is larger than {self.limit_bytes} bytes")
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self.limit_bytes:
            await _refuse(failure, scope, receive, send)
            return
        if declared.isdigit() and b"transfer-encoding" not in headers:
            # The server receives no more than was declared.
            await self.app(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.limit_bytes:
                raise failure
            return message

        await _serve(self.app, scope, counted, send)


@dataclass
class BodyPace:
    """ASGI middleware: 408 for a client that stops sending its body, or sends it too slowly.

    Only the time spent waiting for the client counts, not that of the application.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, watching its body."""
        if scope["type"] != "http" or not _has_body(scope):
            await self.app(scope, receive, send)
            return
        allowance, is_complete = MAX_PAUSE_SECONDS, False
        loop = asyncio.get_running_loop()

        async def timed() -> Message:
            nonlocal allowance, is_complete
            if is_complete:
                return await receive()
            begun = loop.time()
            try:
                async with asyncio.timeout(allowance):
                    message = await receive()
            except TimeoutError as late:
                raise BodyTooSlow("the body was not received in time") from late
            received = len(message.get("body", b""))
            allowance += received / MIN_BYTES_PER_SECOND - (loop.time() - begun)
            allowance = min(max(allowance, 0.0), MAX_PAUSE_SECONDS)
            is_complete = not message.get("more_body", False)
            return message

        await _serve(self.app, scope, timed, send)


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


async def _serve(
    app: ASGIApp, scope: Scope, receive: Callable[[], Awaitable[Message]], send: Send
) -> None:
    """Serve a request; answer with the error of `receive` instead of the application's own."""
    refused: WebError | None = None
    has_answered = False

    async def read() -> Message:
        nonlocal refused
        try:
            return await receive()
        except WebError as failure:
            refused = failure
            raise

    async def answer(message: Message) -> None:
        # The framework answers 400 when reading the body fails; the answer below has the reason.
        nonlocal has_answered
        if has_answered or refused is None:
            has_answered = True
            await send(message)

    try:
        await app(scope, read, answer)
    except WebError as failure:
        if failure is not refused:
            raise
    if refused is not None and not has_answered:
        await _refuse(refused, scope, receive, send)


async def _refuse(failure: WebError, scope: Scope, receive: Receive, send: Send) -> None:
    response = problem_response(problem_of(failure))
    if _has_body(scope):
        # The rest of the body has not arrived, so the connection cannot be used again.
        response.headers["Connection"] = "close"
    await response(scope, receive, send)
