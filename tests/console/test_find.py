"""The search of every page, and a replay, in a real browser."""

from __future__ import annotations

from datetime import timedelta

from playwright.sync_api import expect

from postroad.bus import Bus
from tests.console.clicks import check_access
from tests.console.stage import LANGUAGES, look, press
from tests.fixtures.console import OpenPage, RunningConsole


@LANGUAGES
def test_an_order_is_found_with_a_key_and_replayed(
    open_page: OpenPage, console: RunningConsole, language: str, width: int
) -> None:
    queue = f"found_{language}"
    with Bus(console.dsn) as bus:
        bus.create_queue(queue, payload="jsonb")
        page = open_page(f"/bus/queues/{queue}", role="operator", language=language, width=width)
        expect(page.locator('[data-test="pause"]').first).to_be_visible()
        # Nothing is retained.
        expect(page.locator('[data-test="replay"]')).to_have_count(0)
        bus.alter_queue(queue, retain=timedelta(days=1), track="order_id")
        bus.post(queue, {"order_id": f"order-{language}"})
        page = open_page("/", role="operator", language=language, width=width)
        page.keyboard.press("/")
        expect(page.locator("#find")).to_be_focused()
        # In a field it is a character.
        page.keyboard.type(f"order-{language}/")
        expect(page.locator("#find")).to_have_value(f"order-{language}/")
        page.keyboard.press("Backspace")
        page.keyboard.press("Enter")
        row = page.locator("tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text(f"{queue} → default")
        assert len(bus.consume(queue)) == 1
        page.reload()
        expect(row).to_contain_text(
            {"en": "replay it if needed", "ru": "можно повторить"}[language]
        )
        row.locator("a").click()
        expect(page.locator("pre.data")).to_contain_text(f"order-{language}")
        page = open_page(f"/bus/queues/{queue}", role="operator", language=language, width=width)
        press(page, "replay")
        page.locator('[data-test="since"]').fill("yesterday")
        press(page, "confirm")
        expect(page.locator(".q-notification")).to_contain_text("yesterday")
        page.locator('[data-test="since"]').fill("2026-01-31T12:00")
        page.locator('[data-test="rate"]').fill("100")
        check_access(page)
        press(page, "confirm")
        # What it would post is counted first, and nothing is queued before the second answer.
        expect(page.locator('[data-test="sure"]')).to_contain_text(": 1")
        assert not any(one.queue == queue for one in bus.replays())
        check_access(page)
        press(page, "sure")
        expect(page.locator(".dialog")).to_have_count(0)

        def is_replayed() -> bool:
            return any(one.queue == queue and one.messages == 1 for one in bus.replays())

        while not is_replayed():
            bus.maintain()
        (message,) = bus.consume(queue)
        assert message.headers["replayed"]
        rate = "select rate from mbus.replays where queue = %s"
        assert look(console, rate, queue) == [(100,)]
        page.goto(page.url.partition("/bus")[0] + f"/bus/replays?queue={queue}")
        expect(page.locator("tbody tr")).to_have_count(1)
