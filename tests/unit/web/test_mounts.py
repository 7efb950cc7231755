"""Several applications on one server."""

from __future__ import annotations

import asyncio

import httpx
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from postroad.web.mounts import Mounts
from postroad.web.server import WebServer


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope["raw_path"].decode() + "?" + scope["query_string"].decode()
    await PlainTextResponse(path)(scope, receive, send)


async def other(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await PlainTextResponse("other")(scope, receive, send)


async def test_a_path_arrives_as_it_was_sent_and_only_while_its_component_runs() -> None:
    mounts = Mounts(["/exchange"])
    mounts.app = other
    async with WebServer(mounts) as server, httpx.AsyncClient(base_url=server.url) as client:
        away = await client.get("/exchange/v1/messages")
        assert (away.status_code, away.json()["code"]) == (503, "web_component_unavailable")
        assert away.headers["retry-after"]
        async with mounts.serving("/exchange", echo):
            for path in ("/exchange/a%23b?c=%23", "/exchange/%2e%2e/console?", "/exchange/%252e?"):
                assert (await client.get(path)).text == path
            assert (await client.get("/exchanges/v1")).text == "other"
            assert (await client.get("/")).text == "other"
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"OPTIONS * HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert (await reader.read()).endswith(b"other")
            writer.close()
        assert (await client.get("/exchange/v1/messages")).status_code == 503


async def test_requests_under_way_are_finished_before_a_component_stops() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await release.wait()
        await echo(scope, receive, send)

    mounts = Mounts(["/exchange"])
    mounts.app = other
    async with WebServer(mounts) as server, httpx.AsyncClient(base_url=server.url) as client:
        async with mounts.serving("/exchange", slow):
            asked = asyncio.create_task(client.get("/exchange/a"))
            await begun.wait()
            asyncio.get_running_loop().call_soon(release.set)
        assert (await asked).text == "/exchange/a?"
