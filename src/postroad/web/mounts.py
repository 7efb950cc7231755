"""Several applications on one server: each serves the paths below its prefix while it is mounted.

A component mounts its application once it is ready. When it stops, requests in flight are finished
first; later ones get 503 until the component is back. All other paths belong to `app`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from postroad.web.errors import ComponentUnavailable
from postroad.web.problems import problem_of, problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

GRACE_SECONDS = 10.0


@dataclass
class _Mounted:
    app: ASGIApp
    context: contextvars.Context
    requests: set[asyncio.Task[None]] = field(default_factory=set)


class Mounts:
    """ASGI application that passes each request to the application of its first path segment."""

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        # Serves paths without a prefix; set before the server starts.
        self.app: ASGIApp | None = None
        # The address of the server, once it listens.
        self.url: str | None = None
        self._mounted: dict[str, _Mounted | None] = dict.fromkeys(prefixes)

    @asynccontextmanager
    async def serving(self, prefix: str, app: ASGIApp) -> AsyncIterator[None]:
        """Serve an application until the block ends, then finish its requests.

        Requests run in a copy of the caller's context, so that their log lines are the component's.
        """
        mounted = _Mounted(app, contextvars.copy_context())
        self._mounted[prefix] = mounted
        try:
            yield
        finally:
            if self._mounted.get(prefix) is mounted:
                self._mounted[prefix] = None
            await _finish(mounted.requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond that its component is not running."""
        # The path of `OPTIONS *` has no slash.
        first = scope["path"].removeprefix("/").partition("/")[0] if "path" in scope else ""
        prefix = f"/{first}" if scope["type"] == "http" else ""
        if prefix not in self._mounted:
            assert self.app is not None  # noqa: S101 - set before the server starts
            await self.app(scope, receive, send)
            return
        mounted = self._mounted[prefix]
        if mounted is None:
            failure = ComponentUnavailable(f"{prefix[1:]} is not running")
            await problem_response(problem_of(failure))(scope, receive, send)
            return
        request = asyncio.get_running_loop().create_task(
            _call(mounted.app, scope, receive, send), context=mounted.context.copy()
        )
        mounted.requests.add(request)
        request.add_done_callback(mounted.requests.discard)
        await request


async def _call(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def _finish(requests: set[asyncio.Task[Any]]) -> None:
    late = set(requests)
    if late:
        _, late = await asyncio.wait(late, timeout=GRACE_SECONDS)
    for request in late:
        request.cancel()
    if late:
        await asyncio.wait(late)
