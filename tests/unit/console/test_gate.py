"""What the gate lets through without a session."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest
from starlette.responses import PlainTextResponse

from postroad.console.cache import Cache
from postroad.console.catalogue import texts
from postroad.console.gate import Gate
from postroad.console.login import _inside


class NoAccounts:
    """Nobody is signed in."""

    async def session(self, *_: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/console/login", 200),
        ("/console/static/a.css", 200),
        ("/console/loginX", 401),
        ("/console/login/a", 401),
        ("/console/bus", 401),
        ("/consoles", 200),
    ],
)
async def test_only_the_login_page_is_open(path: str, status: int) -> None:
    gate = Gate(PlainTextResponse("in"), NoAccounts(), Cache())  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate)) as client:
        assert (await client.get(f"http://localhost{path}")).status_code == status


async def test_what_changes_something_must_carry_an_origin() -> None:
    gate = Gate(PlainTextResponse("in"), NoAccounts(), Cache())  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate)) as client:
        assert (await client.post("http://localhost/console/login")).status_code == 403
        own = {"origin": "http://localhost"}
        assert (await client.post("http://localhost/console/login", headers=own)).status_code == 200


class AwayAccounts:
    """The database does not answer."""

    async def session(self, *_: Any) -> None:
        raise psycopg.OperationalError("connection refused")


async def test_a_browser_gets_a_page_that_reloads_itself_while_the_database_is_away() -> None:
    gate = Gate(PlainTextResponse("in"), AwayAccounts(), Cache())  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate)) as client:
        client.cookies.set("postroad_session", "token")
        page = {"accept": "text/html", "accept-language": "ru"}
        answer = await client.get("http://localhost/console/bus", headers=page)
        assert answer.status_code == 503
        assert answer.headers["content-type"].startswith("text/html")
        assert 'http-equiv="refresh"' in answer.text
        assert texts("ru")("error.away_page") in answer.text
        script = await client.get("http://localhost/console/bus")
        assert script.status_code == 503
        assert script.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("wanted", ["//[", "//evil.example", "/console/\nb", "", "/console/\\a"])
def test_the_login_leads_only_to_pages_of_the_console(wanted: str) -> None:
    assert _inside(wanted) == "/console/"
    assert _inside("/console/bus?state=dead") == "/console/bus?state=dead"
