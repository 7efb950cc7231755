"""Leads requests below a path to another server of the house, streaming both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from postroad.web.problems import Problem, problem_response

__all__ = ["Proxy"]

# About one connection only, so neither side may pass them on (RFC 9110, 7.6.1).
HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade", "host", "origin",
}  # fmt: skip
TIMEOUT = httpx.Timeout(connect=5.0, read=None, write=60.0, pool=30.0)


class Proxy:
    """An ASGI application that asks another server with the same path."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._client = httpx.AsyncClient(
            base_url=url, timeout=TIMEOUT, limits=httpx.Limits(max_connections=100), trust_env=False
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and its answer back; 503 while the other side is away."""
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        # A mount shortens nothing here: the whole path is what the other side expects.
        path = scope["path"] + (f"?{query}" if (query := request.url.query) else "")
        asked = self._client.build_request(
            request.method,
            path,
            headers=[
                (name, value) for name, value in request.headers.items() if name not in HOP_BY_HOP
            ],
            content=request.stream() if _has_body(request) else None,
        )
        try:
            answer = await self._client.send(asked, stream=True)
        except httpx.TransportError:
            problem = Problem(
                title="Service Unavailable",
                status=503,
                detail=f"the {self._name} is not there right now",
                code="room_unavailable",
                hint="send the same request again; repeating it is harmless",
                retryable=True,
            )
            await problem_response(problem)(scope, receive, send)
            return
        response = StreamingResponse(_body(answer), status_code=answer.status_code)
        response.raw_headers = [
            (name, value)
            for name, value in answer.headers.raw
            if name.decode("latin-1").lower() not in HOP_BY_HOP
        ]
        await response(scope, receive, send)


def _has_body(request: Request) -> bool:
    return "content-length" in request.headers or "transfer-encoding" in request.headers


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()
