"""API_1, API_3 and API_4 are one round trip to PostgreSQL each, at any of several servers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx
import pytest

from postroad.exchange.server import ExchangeServer
from postroad.exchange.web import create_app
from postroad.postgres import calls
from postroad.settings.exchange import ExchangeSettings
from tests.fixtures.exchange import BASE, Caller, LocalExchange

NONE = "00000000-0000-0000-0000-000000000000"
REPLY = {"name": "r1", "recipient": "phone", "body": {"ok": True}}

_made: ContextVar[list[str] | None] = ContextVar("_made", default=None)


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = calls.run

    async def counting(cursor: Any, text: str, *parameters: Any) -> list[Any]:
        made = _made.get()
        if made is not None:
            function = re.search(r"exchange\.(\w+)", text)
            made.append(function[1] if function else text)
        return await run(cursor, text, *parameters)

    monkeypatch.setattr(calls, "run", counting)


@contextmanager
def _statements() -> Iterator[list[str]]:
    """Collect what the calls of this block wait for: not the batched record of moved files."""
    found: list[str] = []
    token = _made.set(found)
    try:
        yield found
    finally:
        _made.reset(token)
        found[:] = [one for one in found if one != "placed"]


class Server:
    """One of the servers; its requests run in the context of the test."""

    def __init__(self, server: ExchangeServer, caller: Caller) -> None:
        assert server.mover
        assert server.intake
        app = create_app(server.settings, server.mover, server.intake)
        self.journal = server.mover.journal
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://127.0.0.1",
            headers={"Authorization": f"Bearer {caller.token}"},
        )

    async def call(self, path: str, **body: Any) -> dict[str, Any]:
        answer = await self.http.post(f"{BASE}/processes{path}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def introduce(self) -> None:
        """Make a call that changes nothing: a token is looked up once in two seconds."""
        answer = await self.http.post(f"{BASE}/processes/{NONE}/commit", json={})
        assert answer.status_code == 404


@pytest.fixture
async def erp(exchange: LocalExchange) -> Caller:
    return exchange.caller("erp")


@pytest.fixture
async def servers(exchange: LocalExchange, erp: Caller) -> AsyncIterator[list[Server]]:
    settings = ExchangeSettings(**exchange.settings)
    other = ExchangeServer(exchange.dsn, exchange.root, settings, port=0)
    async with other:
        yield [Server(exchange.server, erp), Server(other, erp)]


async def test_each_call_of_a_cycle_is_one_statement(
    exchange: LocalExchange, servers: list[Server]
) -> None:
    first, second = servers
    # At the first server: the second one has not used this database.
    await exchange.caller("phone").send("m1")
    for server in servers:
        await server.introduce()
    with _statements() as found:
        answer = await second.call("", database="sales", attempt="a1")
    assert found == ["start_process"]
    process = answer["process"]["id"]
    with _statements() as found:
        assert await first.call(f"/{process}/prepare", replies=[REPLY]) == {"status": "OK"}
    assert found == ["prepare"]
    with _statements() as found:
        assert await second.call(f"/{process}/commit") == {"status": "OK"}
    assert found == ["end_process"]
    await exchange.until_state(process, "DONE")


async def test_without_replies_a_server_needs_no_database(
    exchange: LocalExchange, servers: list[Server]
) -> None:
    first, second = servers
    await exchange.caller("phone").send("m1", database="stock")
    await second.introduce()
    process = (await first.call("", database="stock", attempt="a1"))["process"]["id"]
    with _statements() as found:
        assert await second.call(f"/{process}/prepare") == {"status": "OK"}
    assert found == ["prepare"]


async def test_asking_a_database_without_messages_is_one_statement(servers: list[Server]) -> None:
    await servers[1].introduce()
    for attempt in "a1", "a2":
        with _statements() as found:
            answer = await servers[1].call("", database="nothing", attempt=attempt)
        assert answer["status"] == "IDLE"
        assert found == ["start_process"]


async def test_a_reply_is_stored_where_the_journal_has_its_process(
    exchange: LocalExchange, servers: list[Server], erp: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of two databases may begin alike: the server guesses wrong, and writes again."""
    first, second = servers
    phone = exchange.caller("phone")
    await phone.send("m1", database="sales")
    await phone.send("m2", database="stock")
    process = (await first.call("", database="sales", attempt="a1"))["process"]["id"]
    mover = exchange.server.mover
    assert mover
    # It has not handed the process out, as if another server had.
    other = Server(exchange.server, erp)
    monkeypatch.setitem(mover.opened_by_prefix, process[:8], "stock")
    await other.introduce()
    with _statements() as found:
        assert await other.call(f"/{process}/prepare", replies=[REPLY]) == {"status": "OK"}
    assert found == ["prepare", "prepare"]
    assert exchange.files("stock") == {"Messages": ["1_m2_from_phone_to_any.json"]}
    assert list(exchange.files("sales")) == ["Messages", "Prepared"]
    await second.call(f"/{process}/commit")
    await exchange.until_state(process, "DONE")


async def test_api_1_of_a_database_whose_folders_are_broken_changes_nothing(
    exchange: LocalExchange, servers: list[Server]
) -> None:
    await exchange.caller("phone").send("m1")
    folder, aside = exchange.root / "sales", exchange.root / ".aside"
    folder.rename(aside)
    folder.write_text("in the way")
    # The second server has not used the folders.
    answer = await servers[1].http.post(
        f"{BASE}/processes", json={"database": "sales", "attempt": "a1"}
    )
    assert (answer.status_code, answer.json()["code"]) == (
        503,
        "exchange_storage_failed",
    )
    (message,) = exchange.rows("select state, failures, expiries from exchange.message")
    assert message == {"state": "queued", "failures": 0, "expiries": 0}
    folder.unlink()
    aside.rename(folder)
    answer = await servers[1].call("", database="sales", attempt="a1")
    assert (answer["status"], answer["process"]["state"]) == ("STARTED", "STARTED")


async def test_a_database_that_only_an_administrator_creates_is_refused(
    exchange: LocalExchange, erp: Caller
) -> None:
    await exchange.restart(creates_databases=False)
    status, answer = await erp.call(
        "POST", "/processes", json={"database": "sales", "attempt": "a1"}
    )
    assert (status, answer["code"]) == (404, "MX021")
