"""Every page in a real browser: both languages, a phone's width, dark mode, axe, no complaints."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatch
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pkgutil import iter_modules

import httpx
import pytest
from playwright.sync_api import Page, expect

from postroad.console import frame, pages
from postroad.console.catalogue import texts
from tests.console.stage import PAGES, Stage
from tests.fixtures.console import OpenPage, RunningConsole
from tests.programs import refuse_missing

# Faults of these weights are failures; the rest is taste.
SERIOUS = {"serious", "critical"}


def axe_source() -> str:
    if find_spec("axe_playwright_python") is None:
        refuse_missing("no axe-core; install it with: make test")
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def faults(page: Page, within: str = "html") -> list[str]:
    """Let axe look at the page, or at a part of it; return the serious faults and their places."""
    # Scripts that a test adds are not the page's, so its policy must not stop them.
    page.evaluate(axe_source())
    found = page.evaluate("part => axe.run(part, {resultTypes: ['violations']})", within)
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


def sticks_out(page: Page) -> bool:
    """Tell whether something is wider than the window; wide things scroll in their own frames."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("component", PAGES)
def test_pages_open_without_complaints_and_faults(
    open_page: OpenPage,
    stage: Stage,
    console: RunningConsole,
    complaints: list[str],
    component: str,
) -> None:
    """Each page is loaded in one language, and looked at by axe wide and light or narrow and dark.

    Pages take turns, so that each component is seen both ways; with POSTROAD_STRESS each page is.
    The other language is asked for without a browser: its texts are all that differs.
    """
    found: list[str] = []
    opened = {language: open_page("/alerts", language=language) for language in ("en", "ru")}
    cookies = {one["name"]: one["value"] for one in opened["en"].context.cookies()}
    opened["ru"].emulate_media(color_scheme="dark")
    with httpx.Client(base_url=console.url, cookies=cookies, timeout=60) as client:
        for name, language in ways(PAGES[component], list(opened)):
            page, path = opened[language], f"/console{stage.path(component, name)}"
            widths = (390, 1360) if language == "en" else (1360, 390)
            page.set_viewport_size({"width": widths[0], "height": 900})
            page.goto(console.url + path)
            page.wait_for_selector(".title h1")
            settle(page)
            assert page.evaluate("document.documentElement.lang")[:2] == language
            for width in widths:
                page.set_viewport_size({"width": width, "height": 900})
                if sticks_out(page):
                    found.append(f"{name} {width}: sticks out")
            theme = "body--light" if language == "en" else "body--dark"
            expect(page.locator("body")).to_have_class(re.compile(theme))
            found += [f"{name} {width} {fault}" for fault in faults(page)]
            other = "ru" if language == "en" else "en"
            answer = client.get(path, headers={"accept-language": other})
            if answer.status_code != 200 or not is_in(other, answer.text):
                found.append(f"{name}: {answer.status_code} in {other}")
            found += [f"{name}: {said}" for said in complaints]
            complaints.clear()
    assert not found, "\n".join(found)


def test_lists_are_sorted_and_filtered_in_the_page(
    open_page: OpenPage, stage: Stage, console: RunningConsole
) -> None:
    page = open_page("/exchange", language="ru")
    heads = page.locator("table").first.locator("th")
    assert heads.last.inner_text() == "Старейшее"
    heads.get_by_role("link", name="очереди").click()
    first = page.locator("table").first
    # Other tests of this process have mailboxes of their own.
    rows = first.locator("tbody tr").filter(has_text="shop-")
    expect(rows.first).to_contain_text("shop-stock")
    first.get_by_role("link", name="очереди").click()
    expect(rows.first).to_contain_text("shop-sales")

    page.goto(f"{console.url}/console/coordination")
    page.get_by_role("link", name="Отстаёт на").click()
    # Otherwise the form could be sent before the link is followed.
    expect(page).to_have_url(re.compile("sort="))
    expect(page.locator('th[aria-sort="descending"]')).to_have_count(1)
    for entity, count in (("DummyItem", 0), ("DummyNode", 2)):
        page.fill("form.filter [name=entity]", entity)
        page.locator("form.filter button").click()
        expect(page.locator("table").last.locator("tbody a")).to_have_count(count)
    page.select_option("form.filter [name=unfinished]", "yes")
    page.locator("form.filter button").click()
    expect(page.locator(".empty")).to_be_visible()
    page.goto(f"{console.url}/console{stage.path('components', 'event')}")
    expect(page.locator("table").last).to_contain_text("координатор")


def test_an_action_on_all_that_match_counts_the_rows_that_have_it(
    open_page: OpenPage, stage: Stage, console: RunningConsole
) -> None:
    # Other tests of this process have messages of their own.
    page = open_page("/exchange/messages?search=shop-1", role="operator")
    page.locator('[data-test="requeue-all"]').click()
    # The message that is listed does not have it.
    expect(page.locator(".q-notification")).to_contain_text("Nothing found")
    expect(page.locator(".q-dialog")).to_have_count(0)


def ways(names: Iterable[str], languages: list[str]) -> Iterable[tuple[str, str]]:
    if os.environ.get("POSTROAD_STRESS"):
        return itertools.product(names, languages)
    return zip(names, itertools.cycle(languages), strict=False)


def is_in(language: str, html: str) -> bool:
    return texts(language)("nav.settings") in html


def test_no_page_is_left_out() -> None:
    """Compare the list above with what the console has registered."""
    known = {path.partition("?")[0] for each in PAGES.values() for path in each.values()}
    shapes = {re.sub(r"\{[^}]*\}", "*", path) for path in known}
    for module in iter_modules(pages.__path__):
        import_module(f"{pages.__name__}.{module.name}")
    registered = {page.path for page in frame.PAGES}
    missing = [
        path
        for path in registered
        if not any(fnmatch(shape, re.sub(r"\{[^}]*\}", "*", path)) for shape in shapes)
    ]
    # Also those that are declared by a list alone.
    assert registered > {"/bus/schedules", "/bus/replays", "/intake/files"}
    assert missing == []


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
