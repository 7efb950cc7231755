"""Every page in a real browser: both languages, a phone's width, dark mode, axe, no complaints."""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.util import find_spec

import pytest
from playwright.sync_api import Page, expect

from tests.console.stage import PAGES, Stage
from tests.fixtures.console import OpenPage, RunningConsole

# Faults of these weights are failures; the rest is taste.
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="session")
def stage(console: RunningConsole) -> Stage:
    """Fill every room with something to see."""
    stage = Stage(console.dsn)
    stage.set()
    return stage


def axe_source() -> str:
    if find_spec("axe_playwright_python") is None:
        reason = "no axe-core; install it with: make test"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def faults(page: Page) -> list[str]:
    """Let axe look at the page; return the serious faults and where they are."""
    # Scripts that a test adds are not the page's, so its policy must not stop them.
    page.evaluate(axe_source())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{fault['id']}: {fault['help']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
        for fault in found["violations"]
        if fault["impact"] in SERIOUS
    ]


def settle(page: Page) -> None:
    """Wait until pictures are drawn and the websocket is there."""
    page.wait_for_function("window.socket === undefined || window.socket.connected")
    for chart in page.locator(".chart canvas").all():
        chart.wait_for(state="visible")
    page.evaluate("document.fonts.ready")


@pytest.mark.parametrize(
    ("language", "width", "theme"),
    [("en", 1360, "light"), ("ru", 390, "dark")],
    ids=["english-wide-light", "russian-phone-dark"],
)
@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_opens_without_complaints_and_faults(
    open_page: OpenPage, stage: Stage, name: str, language: str, width: int, theme: str
) -> None:
    page = open_page(stage.path(name), language=language, width=width, theme=theme)
    settle(page)
    assert page.evaluate("document.documentElement.lang")[:2] == language
    # Nothing sticks out to the right: wide things scroll inside their own frames.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    assert faults(page) == []


@pytest.mark.parametrize(("language", "name"), [("en", "Name"), ("ru", "Имя")])
def test_the_login_page_is_without_faults(
    open_page: OpenPage, console: RunningConsole, language: str, name: str
) -> None:
    page = open_page("/", language=language)
    page.context.clear_cookies()
    page.goto(f"{console.url}/console/login")
    expect(page.locator("label[for=name]")).to_have_text(name)
    assert faults(page) == []


def test_language_and_theme_are_remembered(open_page: OpenPage, console: RunningConsole) -> None:
    page = open_page("/bus")
    page.get_by_role("link", name="Русский").click()
    expect(page.locator("h1")).to_have_text("Шина")
    page.locator("#theme").click()
    expect(page.locator("body.body--dark")).to_be_visible()
    page.goto(f"{console.url}/console/workers")
    expect(page.locator("h1")).to_have_text("Службы")
    expect(page.locator("body.body--dark")).to_be_visible()


def test_the_menu_of_a_phone_opens_and_leads_on(open_page: OpenPage) -> None:
    page = open_page("/", width=390)
    expect(page.locator("#places")).to_be_hidden()
    page.locator("#menu").click()
    page.locator('#places a[href="/console/bus"]').click()
    expect(page.locator("h1")).to_have_text("Bus")
