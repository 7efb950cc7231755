"""What fits on a screen: a small desktop and a phone."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from postroad.bus import Bus
from tests.console.stage import Stage, dead_messages
from tests.fixtures.console import OpenPage, RunningConsole

# The first test of a process fills the pages.
pytestmark = pytest.mark.timeout(180)
LISTS = (
    "/exchange/messages", "/coordination", "/intake/servers", "/intake/files", "/bridges",
    "/bus/queues/shop_orders", "/bus/queues/shop_orders/messages", "/bus/dead",
    "/bus/dead/messages?queue=shop_orders", "/bus/waiting", "/bus/sagas", "/bus/schedules",
    "/bus/replays", "/exchange/clients", "/alerts", "/workers", "/audit", "/find?q=prices.csv",
)  # fmt: skip


def cut_off(page: Page) -> list[str]:
    """Return the tables that are wider than their frames, without the hint that they scroll."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.table')].filter(table => !table.dataset.hasOwnProperty("
        "'more') && table.scrollWidth > table.clientWidth + 1).map(table => table.innerText)"
    )
    return found


@pytest.mark.parametrize("language", ["en", "ru"])
def test_a_small_desktop_cuts_no_column_off(
    open_page: OpenPage, console: RunningConsole, stage: Stage, language: str
) -> None:
    page = open_page("/bus", language=language, width=1024)
    assert cut_off(page) == []
    for path in LISTS:
        page.goto(f"{console.url}/console{path}")
        expect(page.locator("tbody tr").first).to_be_visible()
        assert cut_off(page) == [], path


def test_a_table_that_is_too_wide_has_a_hint_until_its_end_is_reached(
    open_page: OpenPage, stage: Stage
) -> None:
    page = open_page("/bus", width=840)
    table = page.locator(".table").first
    expect(table).to_have_attribute("data-more", "")
    # It stays when the figures are refreshed.
    before = page.locator(".as-of").inner_text()
    expect(page.locator(".as-of")).not_to_have_text(before)
    expect(table).to_have_attribute("data-more", "")
    table.evaluate("table => { table.scrollLeft = table.scrollWidth; }")
    expect(table).not_to_have_attribute("data-more", "")
    page.set_viewport_size({"width": 1024, "height": 768})
    widths = "table => table.scrollWidth - table.clientWidth"
    assert table.evaluate(widths) <= 1


def test_a_phone_lists_dead_messages_as_cards_that_can_be_sorted(
    open_page: OpenPage, console: RunningConsole, stage: Stage
) -> None:
    page = open_page("/bus/dead", width=390)
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("no such customer")
    assert cut_off(page) == []
    inside = "row => [...row.cells].every(cell => cell.getBoundingClientRect().right <= innerWidth)"
    assert row.evaluate(inside)
    page.locator("th a.sort", has_text="Last").click()
    page.wait_for_url(re.compile("sort=last_at"))
    page.locator("tbody a", has_text="no such customer").first.click()
    page.wait_for_url(re.compile("group="))
    expect(page.locator("tbody tr").first).to_contain_text("no such customer")
    assert page.locator("tbody tr").first.evaluate(inside)


def test_numbers_that_name_something_are_not_grouped(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/workers?search=shop-host&sort=pid")
    expect(page.locator('td[data-label="Process ID"]').first).to_have_text("4711")


def test_a_desktop_shows_the_next_step_of_a_journey_and_the_trend_of_an_error(
    open_page: OpenPage, console: RunningConsole, stage: Stage
) -> None:
    page = open_page("/bus/dead", width=1280)
    expect(page.locator("td .spark").first).to_be_visible()
    # The field is as wide as the navigation, and looks like the fields of the filters.
    find, search = page.locator("#find"), page.locator(".filter input").first
    radius = "field => getComputedStyle(field).borderRadius"
    assert find.evaluate(radius) == search.evaluate(radius)
    page.goto(f"{console.url}/console{stage.path('context', 'find')}")
    expect(page.locator("tbody td").last).to_contain_text("a worker takes it")
    table = page.locator(".table").first
    assert table.evaluate("table => table.scrollWidth - table.clientWidth") <= 1


@pytest.mark.parametrize("width", [1024, 1280])
def test_a_small_desktop_shows_whole_rows_of_an_incident(
    open_page: OpenPage, console: RunningConsole, width: int
) -> None:
    with Bus(console.dsn) as bus:
        bus.create_queue("incident", payload="jsonb")
        bus.alter_queue("incident", track="order_id", retain=timedelta(days=1))
        bus.create_consumer("incident", "billing", "(t.properties->'SIZE')='large'")
        dead_messages(bus, "incident", ["ValueError: could not convert string to float: '3'"])
        (dead,) = bus.dead("incident")
        bus.replay("incident")
        bus.pause("incident", "billing", reason="the ERP is down until tomorrow morning")
        bus.schedule("report of partners", "15 minutes", "incident", {}, "Europe/Moscow")
        bus.run_now("report of partners")
        try:
            page = open_page(f"/find?q={dead.iid}", width=width)
            for path in ("/bus/queues/incident", "/bus/schedules?queue=incident",
                         "/bus/replays", "/alerts", f"/find?q={dead.iid}"):  # fmt: skip
                page.goto(f"{console.url}/console{path}")
                table = page.locator(".table", has=page.locator("tbody td")).first
                expect(table).to_be_visible()
                excess = table.evaluate("table => table.scrollWidth - table.clientWidth")
                assert excess <= 1, path
            page.goto(f"{console.url}/console/bus/messages/{dead.iid}")
            expect(page.locator(".timeline li")).to_have_count(1)
            gap = page.locator(".columns + .card").evaluate(
                "card => card.getBoundingClientRect().top"
                " - card.previousElementSibling.getBoundingClientRect().bottom"
            )
            assert gap >= 12
        finally:
            bus.drop_queue("incident")


def test_filters_show_an_example(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/bus/dead/messages?queue=shop_orders", language="ru")
    names = ("error_class", "property", "older_than")
    shown = [page.locator(f"input[name={name}]").get_attribute("placeholder") for name in names]
    assert shown == ["KeyError", "NAME=VALUE", "2 hours"]
