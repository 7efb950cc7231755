"""Problems in a real browser: one list for two pages, and counts that show their limit."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from playwright.sync_api import Page, expect

from postroad.alerts import raise_alert
from postroad.bus import Bus, Saga, Sagas
from postroad.testing import wait_until
from tests.console.stage import press
from tests.fixtures.console import OpenPage, RunningConsole


@pytest.fixture
def bus(console: RunningConsole) -> Iterator[Bus]:
    with Bus(console.dsn) as bus:
        yield bus


def bury(bus: Bus, queue: str, consumer: str) -> None:
    (held,) = bus.lease(queue, consumer)
    bus.nack(held, error="no such customer", park=True)


def stick(bus: Bus) -> int:
    """Start a saga whose compensation dies."""
    for name in ("stuck_rooms", "stuck_no_rooms", "stuck_flights"):
        bus.create_queue(name, payload="jsonb")
    saga = (
        Saga("tour", data={"tour": 1})
        .step("room", do="stuck_rooms", undo="stuck_no_rooms")
        .step("flight", do="stuck_flights", after=["room"])
    )
    saga_id = saga.start(bus)
    bus.consume("stuck_rooms")
    Sagas(bus).cancel(saga_id, "tests")
    (held,) = wait_until(lambda: bus.lease("stuck_no_rooms"), what="the compensation is there")
    bus.nack(held, error="the hotel does not answer", park=True)
    wait_until(lambda: Sagas(bus).status(saga_id)[0].state == "stuck", what="the saga is stuck")
    return saga_id


def shown_problems(page: Page) -> int:
    figure = page.locator(".figure", has_text="Problems").locator(".value")
    return int(figure.inner_text())


def test_overview_and_alerts_show_the_same_problems_with_links_to_their_objects(
    open_page: OpenPage, bus: Bus, console: RunningConsole
) -> None:
    bus.create_queue("trouble", payload="jsonb")
    bus.create_consumer("trouble", "second")
    bus.post("trouble", {"n": 1})
    bury(bus, "trouble", "second")
    stick(bus)
    with psycopg.connect(console.dsn) as connection:
        raise_alert(
            connection, "intake.file.77", room="intake", severity="error", title="file 77 failed"
        )
    page = open_page("/alerts", role="operator")
    dead = page.get_by_role("link", name=re.compile("trouble, consumer second"))
    expect(dead).to_have_attribute("href", re.compile("consumer=second&state=dead"))
    expect(page.get_by_role("link", name=re.compile("Stuck sagas"))).to_be_visible()
    expect(page.get_by_role("link", name="file 77 failed")).to_have_attribute(
        "href", "/console/intake/files/77"
    )
    listed = page.locator(".table", has_text="file 77 failed").locator("tbody tr")
    acknowledged = listed.filter(has_text="acknowledged")
    overview = open_page("/")
    # Both pages are refreshed on their own, and other tests may clear their alerts meanwhile.
    wait_until(
        lambda: shown_problems(overview) == listed.count() - acknowledged.count(),
        what="both pages count the same",
    )
    before = shown_problems(overview)
    row = page.get_by_role("row", name="file 77 failed")
    row.locator('[data-test="own-row"]').click()
    expect(row.locator(".badge").first).to_have_text("acknowledged")
    expect(row.locator(".badge.bad")).to_have_count(0)
    wait_until(lambda: shown_problems(overview) == before - 1, what="it does not count any more")
    bus.drop_queue("trouble")


def test_counts_that_stop_at_a_limit_are_marked(
    open_page: OpenPage, bus: Bus, console: RunningConsole
) -> None:
    for name in ("many_dead", "few_dead"):
        bus.create_queue(name, payload="jsonb")
    bus.post("few_dead", {"n": 1})
    bury(bus, "few_dead", "default")
    with psycopg.connect(console.dsn) as connection:
        connection.execute(
            "insert into mbus.dmq (queue_id, consumer_id, died_at, error, number, added,"
            " fingerprint) select c.queue_id, c.id, now(), 'TimeoutError', n, now(),"
            " mbus._fingerprint('TimeoutError')"
            " from mbus.consumer c join mbus.queue q on q.id = c.queue_id and q.name = 'many_dead'"
            " cross join generate_series(1, 10100) n"
        )
    page = open_page("/bus?search=many_dead")
    expect(page.locator("tbody .badge.bad")).to_have_text("10\u202f000+")
    page = open_page("/bus/dead")
    expect(page.get_by_role("row", name="many_dead")).to_contain_text("10\u202f100")
    # One queue with many dead messages does not hide those of another.
    expect(page.get_by_role("row", name="few_dead")).to_contain_text("no such customer")
    page = open_page("/bus/queues/many_dead/messages?state=dead", role="operator")
    press(page, "purge-all")
    expect(page.locator(".dialog")).to_contain_text("10\u202f100")
    for name in ("many_dead", "few_dead"):
        bus.drop_queue(name)


def test_all_alerts_are_acknowledged_only_where_there_is_one(
    open_page: OpenPage, bus: Bus, console: RunningConsole
) -> None:
    bus.create_queue("trouble", payload="jsonb")
    bus.post("trouble", {"n": 1})
    bury(bus, "trouble", "default")
    with psycopg.connect(console.dsn) as connection:
        raise_alert(
            connection, "intake.file.78", room="intake", severity="error", title="file 78 failed"
        )
    page = open_page("/alerts", role="operator")
    press(page, "ack-all")
    press(page, "confirm")
    # Dead messages cannot be acknowledged: they leave the list when they are resolved.
    expect(
        page.get_by_role("link", name=re.compile("trouble, consumer default: 1"))
    ).to_be_visible()
    expect(page.locator('[data-test="ack-all"]')).to_be_hidden()
    bus.drop_queue("trouble")
