"""The HTTP server as a service."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import urllib.request
from collections.abc import AsyncIterator
from functools import partial

import httpx
import pytest
from fastapi import FastAPI, Request

from postroad.web import server as web_server
from postroad.web.mounts import Mounts
from postroad.web.server import AddressInUse, WebServer


async def test_it_serves_on_a_free_port_until_it_is_stopped() -> None:
    app = FastAPI()

    @app.get("/")
    def root() -> str:
        return "here"

    async with WebServer(app) as server:
        with await asyncio.to_thread(urllib.request.urlopen, server.url) as answer:
            assert answer.read() == b'"here"'
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(urllib.request.urlopen, server.url)


async def test_as_a_part_of_another_server_it_opens_no_port_and_has_its_lifespan() -> None:
    lived: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        lived.append("begun")
        yield
        lived.append("ended")

    app = FastAPI(lifespan=lifespan)

    @app.get("/exchange/health")
    def health() -> str:
        return "here"

    mounts = Mounts(["/exchange"])
    mounts.app = FastAPI()
    transport = httpx.ASGITransport(mounts)
    async with httpx.AsyncClient(transport=transport, base_url="http://up") as client:
        part = WebServer(app, port=1, publish=partial(mounts.serving, "/exchange"))
        async with part:
            assert (await client.get("/exchange/health")).json() == "here"
            assert lived == ["begun"]
        assert (await client.get("/exchange/health")).status_code == 503
    assert lived == ["begun", "ended"]


async def test_a_taken_address_is_named() -> None:
    async with WebServer(FastAPI()) as first:
        second = WebServer(FastAPI(), port=first.port)
        await second.start()
        with pytest.raises(AddressInUse, match=str(first.port)):
            await second.ready()


def test_an_address_of_ipv6_on_a_machine_without_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OnlyIpv4(socket.socket):
        def __init__(self, family: int = socket.AF_INET, *given: int, **more: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *given, **more)

    monkeypatch.setattr(socket, "socket", OnlyIpv4)
    with pytest.raises(AddressInUse, match="::1:0: Address family not supported"):
        web_server.listen("::1", 0)


async def test_a_client_that_does_not_finish_its_headers_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web_server, "HEAD_TIMEOUT_SECONDS", 0.2, raising=False)
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    async with WebServer(FastAPI()) as server, asyncio.timeout(20):
        for sent in (b"", request, request + b"\r\n" + request):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                answer = await reader.read()
            assert answer.count(b"HTTP/1.1 404") == sent.count(b"\r\n\r\n")
            writer.close()


async def test_a_request_whose_headers_are_too_large_is_not_kept() -> None:
    async with WebServer(FastAPI()) as server, asyncio.timeout(20):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(ConnectionError):  # noqa: PT012
            for _ in range(1_000):
                writer.write(b"X: " + b"a" * 10_000 + b"\r\n")
                await writer.drain()
        writer.close()


async def test_a_body_and_a_slow_answer_may_take_longer_than_the_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web_server, "HEAD_TIMEOUT_SECONDS", 0.2, raising=False)
    app = FastAPI()

    @app.post("/")
    async def size(request: Request) -> int:
        body = await request.body()
        await asyncio.sleep(0.5)  # longer than the limit of the headers
        return len(body)

    async with WebServer(app) as server, httpx.AsyncClient(base_url=server.url) as client:
        for _ in range(2):
            answer = await client.post("/", content=b"a" * 1_000_000)
            assert answer.json() == 1_000_000
