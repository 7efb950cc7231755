"""An operator who counts clicks, and the check of a page by axe."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.console.test_every_page import faults


class Operator:
    """Clicks, and counts the clicks."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def click(self, target: str | Locator) -> None:
        """Click the first element with this test hook, or this one."""
        if isinstance(target, str):
            target = self.page.locator(f'[data-test="{target}"]').first
        target.click()
        self.clicks += 1

    def go(self, *names: str) -> None:
        """Follow links by their addresses."""
        for name in names:
            self.click(
                self.page.locator(
                    f'main a[href="/console{name}"], nav a[href="/console{name}"]'
                ).first
            )
            self.page.wait_for_url(re.compile(re.escape(name)))
            self.page.wait_for_selector(".title h1")


def settle_animations(page: Page) -> None:
    """Wait until nothing moves any more."""
    page.wait_for_function(
        "document.getAnimations().every((one) => one.playState !== 'running'"
        " || one.effect.getComputedTiming().iterations === Infinity)"
    )


def check_access(page: Page) -> None:
    """Check the page with axe, once no notice covers it."""
    expect(page.locator(".q-notification")).to_have_count(0)
    settle_animations(page)
    found = faults(page)
    assert not found, "\n".join(found)
