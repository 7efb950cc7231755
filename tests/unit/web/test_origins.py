"""Every request is checked for its host, origin and media type before anything serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from fastapi import FastAPI

from postroad.settings import HttpSettings
from postroad.web.server import WebServer

HTTP = HttpSettings(public_url="https://road.example", allowed_hosts=("exchange.example",))


def application() -> FastAPI:
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST", "PUT"])
    async def anything(path: str) -> str:
        return path

    return app


async def answer_to(server: WebServer, request: str) -> bytes:
    """Send bytes that no client library would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request.encode("latin-1"))
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def status_of(
    server: WebServer, method: str, path: str, headers: Sequence[str], body: str = ""
) -> int:
    lines = [f"{method} {path} HTTP/1.1", *headers, "Connection: close", "", body]
    return int((await answer_to(server, "\r\n".join(lines))).split()[1])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Host: 127.0.0.1:8080"], 200),
        (["Host: [::1]:8080"], 200),
        (["Host: LocalHost"], 200),
        (["Host: road.example"], 200),
        (["Host: exchange.example:8420"], 200),
        (["Host: evil.example"], 421),
        (["Host: road.example.evil.example"], 421),
        (["Host: ["], 400),
        (["Host: "], 400),
        (["Host: localhost:port"], 400),
        (["Host: \xe9vil"], 400),
        (["Host: localhost", "Host: evil.example"], 400),
        ([], 400),
    ],
)
async def test_only_names_of_this_server_are_served(headers: list[str], status: int) -> None:
    async with WebServer(application(), http=HTTP) as server:
        assert await status_of(server, "GET", "/a", headers) == status


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", [], 200),
        ("POST", ["Origin: http://localhost:1"], 200),
        ("POST", ["Origin: https://road.example"], 200),
        ("POST", ["Origin: http://evil.example"], 403),
        ("PUT", ["Origin: http://localhost"], 403),
        ("POST", ["Origin: null"], 403),
        ("POST", ["Origin: http://localhost:1", "Origin: http://evil.example"], 403),
        # Reading is harmless: a browser does not show the answer to a page of another site.
        ("GET", ["Origin: http://evil.example"], 200),
        ("POST", ["Content-Type: application/json; charset=utf-8"], 200),
        ("POST", ["Content-Type: text/plain"], 415),
        ("POST", ["Content-Type: Application/X-WWW-Form-Urlencoded"], 415),
        ("POST", ["Content-Length: 0"], 200),
        ("PUT", ["Content-Type: text/plain"], 200),
    ],
)
async def test_only_our_own_pages_and_other_programs_change_things(
    method: str, headers: list[str], status: int
) -> None:
    async with WebServer(application(), http=HTTP) as server:
        assert await status_of(server, method, "/a", ["Host: localhost:1", *headers]) == status


async def test_a_page_may_not_send_a_body_without_a_media_type_a_program_may() -> None:
    async with WebServer(application()) as server:
        headers = ["Host: localhost", "Content-Length: 2"]
        own = [*headers, "Origin: http://localhost"]
        assert await status_of(server, "POST", "/a", own, "{}") == 415
        assert await status_of(server, "POST", "/a", headers, "{}") == 200


async def test_forms_are_accepted_where_an_application_asks_for_them() -> None:
    async with WebServer(application(), form_paths=("/console/",)) as server:
        form = ["Host: localhost", "Content-Type: multipart/form-data"]
        assert await status_of(server, "POST", "/console/login", form) == 200
        assert await status_of(server, "POST", "/consoles", form) == 415


async def test_a_path_with_nul_is_refused_and_other_characters_arrive_as_sent() -> None:
    async with WebServer(application()) as server:
        assert await status_of(server, "GET", "/a%00b", ["Host: localhost"]) == 400
        request = "GET /a%23b%252e HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert (await answer_to(server, request)).endswith(b'"a#b%2e"')
