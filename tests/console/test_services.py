"""What the console knows of services: stopped in order, lost, forgotten."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import LiteralString

import httpx
import psycopg
import pytest
from playwright.sync_api import Browser, expect
from psycopg.types.json import Jsonb

from postroad.cli.supervisor import Reporter, ServicePlan, Supervised, Supervisor
from postroad.postgres.calls import call
from postroad.postgres.connections import connect_async
from postroad.service import Service
from postroad.testing import wait_until
from tests.console.test_every_page import faults
from tests.fixtures.console import RunningConsole, end_part, start_part
from tests.fixtures.processes import free_port
from tests.fixtures.up import Start, addresses

STATES: LiteralString = "select host, name, state from console.services()"


def look(dsn: str, query: LiteralString) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query).fetchall()


def fall_silent(dsn: str) -> None:
    """Let everybody have been silent for longer than a supervisor is."""
    look(dsn, "update console.service set told_at = told_at - interval '21 s' returning 1")


async def report(dsn: str, host: str) -> None:
    async with await connect_async(dsn, autocommit=True) as connection:
        since = datetime.now(UTC).isoformat()
        report = {"name": "web", "state": "running", "pid": 1, "restarts": 0, "since": since}
        await call(connection, "console.report_services", host, Jsonb([report]))


async def test_a_host_that_is_gone_is_lost_and_then_forgotten(database: str) -> None:
    await report(database, "old")
    fall_silent(database)
    await report(database, "new")
    assert look(database, STATES) == [("new", "web", "running"), ("old", "web", "lost")]
    day: LiteralString = (
        "update console.service set told_at = told_at - interval '1 day' where host = 'old'"
        " returning 1"
    )
    look(database, day)
    assert look(database, STATES) == [("new", "web", "running")]
    await report(database, "new")
    assert look(database, "select host from console.service") == [("new",)]


async def test_an_operator_forgets_a_host_that_is_silent_and_no_other(database: str) -> None:
    await report(database, "old")
    fall_silent(database)
    await report(database, "new")
    assert look(database, "select console.forget_services('new')") == [(0,)]
    assert look(database, "select console.forget_services('old')") == [(1,)]
    assert look(database, STATES) == [("new", "web", "running")]


async def test_who_stops_in_order_is_not_lost(database: str) -> None:
    supervisor = Supervisor()
    supervisor.children = [Supervised(ServicePlan("web", Service), supervisor.changed.set)]
    async with Reporter(database, supervisor):
        seen = partial(wait_until, lambda: look(database, STATES), what="it is told")
        await asyncio.to_thread(seen)
        supervisor.children.clear()
    assert look(database, STATES) == []


def test_the_gateway_of_up_asks_for_its_token(console: RunningConsole) -> None:
    port = free_port()
    environment = {
        **console.environment,
        "POSTROAD_COORDINATION__WRITER_URL": console.lab.dsns["writer"],
        "POSTROAD_COORDINATION__COORDINATOR_URL": console.lab.dsns["coordinator"],
        "POSTROAD_COORDINATION__READER_URL": console.lab.dsns["lists"],
        "POSTROAD_COORDINATION__TOKEN": "a token of tests",
        "POSTROAD_COORDINATION__PORT": str(port),
    }
    process, _ = start_part("gateway", console.dsn, environment)
    try:
        url = f"http://127.0.0.1:{port}/coordination/v1/events"
        assert httpx.get(url).status_code == 401
        wrong = {"authorization": "Bearer another"}
        assert httpx.get(url, headers=wrong).status_code == 401
        right = {"authorization": "Bearer a token of tests"}
        assert httpx.get(url, headers=right).status_code == 200
    finally:
        end_part(process)


@pytest.mark.timeout(300)
def test_a_service_is_restarted_in_two_clicks_and_its_log_read_in_one(
    start: Start, folder: Path, browser: Browser
) -> None:
    del folder
    table = addresses(start("--port", "0", "--only=web", "--only=maintenance"))
    page = browser.new_context(locale="en", viewport={"width": 1360, "height": 900}).new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{table['console']}/workers")
    page.fill("#name", table["login"])
    page.fill("#password", table["password"])
    page.click("button[type=submit]")
    row = page.get_by_role("row", name="maintenance").first
    expect(row).to_contain_text("running")
    # The web service shows this page: it has a log, and no button.
    expect(page.locator('[data-test="restart-row"]')).to_have_count(1)
    row.locator('[data-test="restart-row"]').click()
    page.locator('[data-test="confirm"]').click()
    expect(row.locator("td").nth(2)).to_have_text("1")
    expect(row).to_contain_text("running")
    row.get_by_role("link", name="Log").click()
    expect(page.locator("pre.data")).to_contain_text("service_ended")
    assert faults(page) == []
