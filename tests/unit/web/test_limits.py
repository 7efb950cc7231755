"""Slow and unauthenticated bodies cost the server nothing."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from postroad.web import limits
from postroad.web.application import prepare
from postroad.web.limits import TokenCheck
from postroad.web.server import WebServer

HEAD = "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def application(token: str | None = None) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/orders")
    async def order(amount: dict[str, int]) -> dict[str, int]:
        return amount

    if token is not None:
        app.add_middleware(TokenCheck, token=token, prefix="/v1")
    return prepare(app)


async def answer_to(server: WebServer, request: str) -> bytes:
    """Send a request whose body may be incomplete, and return the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_client_that_stops_sending_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PAUSE_SECONDS", 0.1)
    async with WebServer(application()) as server:
        answer = await answer_to(server, f'{HEAD}Content-Length: 100\r\n\r\n{{"a"')
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"web_body_too_slow" in answer
        whole = await answer_to(server, f"{HEAD}Content-Length: 7\r\nConnection: close\r\n\r\n"
                                '{"a":1}')  # fmt: skip
        assert whole.startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_trickles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PAUSE_SECONDS", 0.1)
    sent: list[Message] = []

    async def trickle() -> Message:
        # What a slow client costs, and what is measured.
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await PlainTextResponse("whole")(scope, receive, send)

    scope = {"type": "http", "headers": [(b"content-length", b"100000")]}
    await limits.BodyPace(read_all)(scope, trickle, send)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_the_body_of_a_request_without_the_token_is_not_read() -> None:
    async with WebServer(application("right")) as server:
        for header in ("", "Authorization: Bearer \r\n", "Authorization: Bearer wr\xf6ng\r\n"):
            answer = await answer_to(server, f"{HEAD}{header}Content-Length: 100\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 401 "), header
