"""The tour in a real browser, beside a real `postroad up`: what is broken there heals."""

from __future__ import annotations

import re
import signal
import tomllib
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from postroad.cli.main import cli
from postroad.cli.parts import find_part
from postroad.console.pages.tour import FAULTS
from tests.fixtures.console import OpenPage
from tests.fixtures.up import Start, addresses

SERVICES = ("maintenance", "web", "exchange", "sample-orders", "sample-billing", "sample-partners",
            "sample-erps", "sample-sftp")  # fmt: skip
# A busy machine, and ERPs that stay away for 20 seconds.
HEALED_MILLISECONDS = 120_000


def test_only_sample_services_can_be_broken() -> None:
    parts = [find_part(fault.service) for fault in FAULTS]
    assert [part.is_sample for part in parts if part] == [True] * len(FAULTS)


@pytest.mark.parametrize("language", ["en", "ru"])
def test_the_commands_that_the_tour_suggests_work(language: str, database: str) -> None:
    file = files("postroad.console").joinpath("messages", f"{language}.toml")
    advice = tomllib.loads(file.read_text(encoding="utf-8"))["tour"]["next_1"]
    commands = re.findall(r"postroad (bus [\w -]+\w)", advice)
    assert len(commands) == 2
    for command in commands:
        done = CliRunner().invoke(cli, ["--database-url", database, *command.split()])
        assert done.exit_code == 0, done.output


def test_a_console_without_a_sample_offers_no_tour(open_page: OpenPage) -> None:
    page = open_page("/tour")
    expect(page.locator(".empty")).to_contain_text("postroad up")
    expect(page.locator('[data-test^="break-"]')).to_have_count(0)
    expect(page.locator('#places a[href="/console/tour"]')).to_have_count(0)


@pytest.mark.timeout(600)
def test_what_the_tour_breaks_heals(start: Start, folder: Path, browser: Browser) -> None:
    del folder
    process = start("--port", "0", *(f"--only={name}" for name in SERVICES))
    table = addresses(process)
    page = browser.new_context(locale="en", viewport={"width": 1360, "height": 900}).new_page()
    page.set_default_timeout(60_000)
    # The address that is printed first leads through the login to the tour.
    page.goto(table["start here"])
    page.fill("#name", table["login"])
    page.fill("#password", table["password"])
    page.click("button[type=submit]")
    expect(page.locator("h1")).to_have_text("A short tour")
    for fault in FAULTS:
        card = page.locator("section.card").filter(
            has=page.locator("dd code", has_text=fault.service)
        )
        button = page.locator(f'[data-test="break-{fault.key}"]')
        expect(button).to_be_visible()
        number = card.locator("dt", has_text="Process ID").locator("+ dd")
        before = number.inner_text()
        button.click()
        course = card.locator("ol.timeline li")
        expect(course.first).to_contain_text("Broken")
        expect(course.last).to_have_text(
            re.compile("Healed.*[0-9]:[0-9]"), timeout=HEALED_MILLISECONDS
        )
        expect(course.nth(1)).to_have_text(re.compile("Running again.*[0-9]:[0-9]"))
        if fault.key == "worker":
            assert number.inner_text() not in {before, str(process.pid)}
            expect(card).to_contain_text(re.compile("At most [0-9]+ messages waited"))
    dsn = table["database (embedded)"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        audit = connection.execute(
            "select target, outcome from console.audit where action = 'break' order by id"
        ).fetchall()
        assert audit == [(fault.service, "done") for fault in FAULTS]
        restarts = dict(
            connection.execute("select name, restarts from console.services()").fetchall()
        )
    assert {name for name, count in restarts.items() if count} == {one.service for one in FAULTS}
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
