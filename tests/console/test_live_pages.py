"""Pages that refresh themselves, in a real browser: what the person does is not disturbed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import httpx
import pytest
from playwright.sync_api import expect

from postroad.bus import Bus
from postroad.exchange import operations as exchange_operations
from postroad.postgres import run_blocking
from postroad.web.cursors import encode_cursor
from tests.console.stage import look
from tests.fixtures.console import OpenPage, RunningConsole
from tests.fixtures.exchange_server import ExchangeProcess


@pytest.fixture
def bus(console: RunningConsole) -> Iterator[Bus]:
    with Bus(console.dsn) as bus:
        yield bus


@pytest.fixture
def queue(bus: Bus) -> Iterator[str]:
    bus.create_queue("refreshed", payload="jsonb")
    yield "refreshed"
    bus.drop_queue("refreshed")


def test_a_refresh_keeps_the_scroll_position_and_the_focus(
    open_page: OpenPage, bus: Bus, queue: str
) -> None:
    bus.create_queue("refreshed_too", payload="jsonb")
    page = open_page(f"/bus?search={queue}&sort=depth&order=down", width=840)
    table, row = page.locator(".table").first, page.locator("tbody tr", has_text="refreshed_too")
    table.evaluate("table => { table.scrollLeft = 20; }")
    row.locator("a").first.focus()
    # The row moves to the top, and its figures change.
    bus.post_many("refreshed_too", [{"n": n} for n in range(321)])
    expect(row).to_contain_text("321")
    expect(page.locator("tbody tr").first).to_contain_text("refreshed_too")
    bus.post("refreshed_too", {"n": 321})
    expect(row).to_contain_text("322")
    assert table.evaluate("table => table.scrollLeft") == 20
    focused = page.evaluate("document.activeElement.textContent")
    assert focused == "refreshed_too"
    bus.drop_queue("refreshed_too")


def test_times_are_in_the_zone_of_the_browser_which_is_named(
    open_page: OpenPage, bus: Bus, queue: str, console: RunningConsole
) -> None:
    iid = bus.post(queue, {"n": 1})
    ((added,),) = look(console, "select added from mbus.browse('refreshed')")
    page = open_page(f"/bus/messages/{iid}", timezone="Asia/Tokyo")
    posted = added.astimezone(ZoneInfo("Asia/Tokyo"))
    today = datetime.now(UTC).astimezone(ZoneInfo("Asia/Tokyo")).date()
    form = "%H:%M:%S" if posted.date() == today else "%Y-%m-%d %H:%M"
    expect(page.locator("#main")).to_contain_text(posted.strftime(form))
    expect(page.locator(".foot")).to_contain_text("Asia/Tokyo, UTC+09:00")
    expect(page.locator(".as-of")).to_contain_text("as of")


def test_a_search_without_hits_is_not_an_empty_bus(
    open_page: OpenPage, bus: Bus, queue: str
) -> None:
    for path in ("/bus", f"/bus/queues/{queue}/messages", "/exchange/messages", "/audit"):
        page = open_page(f"{path}?search=nobody-has-this-name")
        expect(page.locator(".empty").first).to_contain_text("Nothing found")


def test_a_large_payload_is_shown_in_part_with_its_size_and_downloaded_as_a_whole(
    open_page: OpenPage, bus: Bus, queue: str
) -> None:
    text = "x" * 150_000
    iid = bus.post(queue, {"text": text})
    page = open_page(f"/bus/messages/{iid}")
    expect(page.locator("#main")).to_contain_text("The first 100\u202f000 characters are shown")
    expect(page.locator("#main")).to_contain_text("150.0 kB")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    saved = download.value.path().read_text(encoding="utf-8")
    assert saved == f'{{"text": "{text}"}}'


def test_messages_that_wait_for_others_are_a_column(
    open_page: OpenPage, bus: Bus, queue: str
) -> None:
    first = bus.post(queue, {"n": 1})
    for number in range(7):
        bus.post(queue, {"n": number}, headers={"consume_after": f"{{{first}}}"})
    page = open_page(f"/bus?search={queue}")
    row = page.get_by_role("row", name="refreshed default")
    expect(row.locator('td[data-label="waiting"]')).to_have_text("7")


def test_a_message_of_the_exchange_is_found_by_its_id(
    open_page: OpenPage, console: RunningConsole, console_exchange: ExchangeProcess
) -> None:
    token = run_blocking(
        console.dsn, exchange_operations.add_client, "finder", databases=None
    ).token
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        for name in ("order-4711", "order-4712"):
            message = {"id": name, "database": "found_orders", "body": {}}
            address = f"{console.exchange_url}/exchange/v1/messages"
            assert client.post(address, json=message).is_success
    page = open_page("/exchange/messages?search=4711")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("order-4711")


def test_the_settings_show_the_port_that_is_served(
    open_page: OpenPage, console: RunningConsole
) -> None:
    page = open_page("/settings?search=http.port")
    expect(page.locator("tbody tr").first).not_to_contain_text("8080")


def test_a_phone_shows_the_active_tab_and_sorts(open_page: OpenPage, bus: Bus, queue: str) -> None:
    page = open_page("/bus/sagas?state=compensated", width=390)
    tab = page.locator('.tabs a[aria-current="page"]')
    expect(tab).to_be_in_viewport(ratio=0.99)
    page = open_page(f"/bus?search={queue}", width=390)
    page.locator("th a.sort", has_text="Depth").click()
    page.wait_for_url(re.compile("sort=depth"))


def test_sorting_a_later_page_starts_at_the_first_one(
    open_page: OpenPage, bus: Bus, queue: str
) -> None:
    page = open_page(f"/bus?search={queue}&after={encode_cursor(10**9, 'a')}")
    page.locator("th a.sort", has_text="Oldest").click()
    page.wait_for_url(re.compile("sort=oldest_age"))
    assert "after=" not in page.url
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_large_file_of_the_exchange_is_shown_in_part_and_downloaded_as_a_whole(
    open_page: OpenPage, console: RunningConsole, console_exchange: ExchangeProcess
) -> None:
    token = run_blocking(
        console.dsn, exchange_operations.add_client, "large-files", databases=None
    ).token
    text = "x" * 150_000
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        message = {"id": "large", "database": "large", "body": {"text": text}}
        sent = client.post(f"{console.exchange_url}/exchange/v1/messages", json=message)
        assert sent.is_success
    number = look(console, "select number from exchange.message where id = 'large'")[0][0]
    page = open_page(f"/exchange/messages/{number}")
    expect(page.locator("#main")).to_contain_text("The first 100\u202f000 characters are shown")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert text in download.value.path().read_text(encoding="utf-8")
    assert page.request.get(f"{console.url}/console/exchange/data/999999").status == 404
