"""The rooms in a real browser: an in-doubt process is resolved, a new server's file arrives."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from postroad.console.catalogue import texts
from postroad.exchange import operations
from postroad.postgres import run_blocking
from postroad.testing import wait_until
from tests.console.clicks import Operator, check_access
from tests.console.stage import LANGUAGES, look, press
from tests.fixtures.console import OpenPage, RunningConsole, end_part, start_part
from tests.fixtures.exchange_server import ExchangeProcess
from tests.fixtures.sshd import PasswordSftp


@LANGUAGES
def test_a_process_in_doubt_comes_first_and_is_resolved(
    open_page: OpenPage,
    console: RunningConsole,
    console_exchange: ExchangeProcess,
    language: str,
    width: int,
) -> None:
    database = f"sales-{language}"
    token = run_blocking(
        console.dsn, operations.add_client, f"erp-{language}", databases=None
    ).token
    with httpx.Client(
        base_url=f"{console.exchange_url}/exchange/v1", headers={"Authorization": f"Bearer {token}"}
    ) as erp:
        message = {"id": f"m-{language}", "database": database, "body": {"number": 4711}}
        assert erp.post("/messages", json=message).status_code in (200, 201)
        begun = erp.post("/processes", json={"database": database, "attempt": "one"}).json()
        process = begun["process"]["id"]
        ready = erp.post(f"/processes/{process}/prepare", json={"replies": [], "results": {}})
        assert ready.json()["status"] == "OK"
    state = "select state from exchange.process where id = %s"
    wait_until(lambda: look(console, state, process) == [("UNKNOWN",)], what="it is in doubt")

    page = open_page("/exchange", role="operator", language=language, width=width)
    urgent = page.locator(".card.urgent")
    expect(urgent).to_contain_text(database)
    urgent.get_by_role("link", name=process[:13]).click()
    expect(page.locator(".graph svg .node").first).to_be_visible()
    press(page, "resolve-aborted")
    press(page, "confirm")
    expect(page.locator(".q-notification").first).to_be_visible()
    wait_until(lambda: look(console, state, process) == [("ABORTED",)], what="it is settled")
    expect(page.locator(".timeline li")).to_have_count(4)

    page.goto(f"{console.url}/console/exchange/messages?database={database}")
    page.locator("tbody a").first.click()
    expect(page.locator("pre.data")).to_contain_text("4711")
    audit = look(console, "select account, outcome from console.audit where target = %s", process)
    assert audit == [("operator", "done")]


@LANGUAGES
def test_the_servers_of_the_exchange_are_listed(
    open_page: OpenPage,
    console: RunningConsole,
    console_exchange: ExchangeProcess,
    language: str,
    width: int,
) -> None:
    t = texts(language)
    page = open_page("/exchange", language=language, width=width)
    servers = page.locator(".card", has=page.get_by_role("heading", name=t("exchange.servers")))
    holders = [row[0] for row in look(console, "select holder from exchange.member")]
    assert holders
    for holder in holders:
        expect(servers).to_contain_text(holder)


@pytest.fixture(scope="session")
def celery(console: RunningConsole) -> Iterator[None]:
    quick = {
        **console.environment,
        "POSTROAD_INTAKE__DISCOVER_INTERVAL": "500ms",
        "POSTROAD_INTAKE__RECONCILE_INTERVAL": "1s",
    }
    started = [start_part(name, console.dsn, quick) for name in ("celery-worker", "celery-beat")]
    yield
    for process, _ in started:
        end_part(process)


@pytest.mark.slow
@pytest.mark.timeout(120)
@LANGUAGES
def test_a_server_is_added_and_its_file_arrives(
    open_page: OpenPage,
    console: RunningConsole,
    celery: None,
    password_sftp: PasswordSftp,
    language: str,
    width: int,
) -> None:
    t, name = texts(language), f"partner-{language}"
    (password_sftp.files / f"prices-{language}.csv").write_text("bread;1.20\n", encoding="utf-8")
    page = open_page("/intake/servers", role="operator", language=language, width=width)
    press(page, "add-server")
    for field, value in (
        ("name", name),
        ("host", "127.0.0.1"),
        ("port", str(password_sftp.port)),
        ("username", password_sftp.username),
        ("directory", "/"),
        ("password", password_sftp.password),
    ):
        page.locator(f'[data-test="server-{field}"]').fill(value)
    press(page, "server-trusts-first-key")
    press(page, "server-save")
    expect(page.locator("h1")).to_have_text(t("intake.server_title", server=name))
    look(console, "update intake.sftp_servers set scan_interval = '1 s' returning id")
    press(page, "test-server")
    expect(page.locator(".q-notification", has_text=t("intake.works"))).to_be_visible()
    page.goto(f"{console.url}/console/intake/files?search=prices-{language}&server={name}")
    expect(page.locator("tbody")).to_contain_text(t("word.status.completed"), timeout=60_000)
    operator = Operator(page)
    operator.click(page.get_by_role("link", name=f"prices-{language}.csv"))
    expect(page.locator(".timeline")).to_contain_text(t("word.status.completed"))
    # The import has posted its notice, and nobody has taken that.
    expect(page.get_by_role("row", name="default")).to_contain_text(t.state("ready"))
    notice = page.locator('a[href*="/bus/messages/file_events."]').first
    iid = notice.inner_text()
    operator.click(notice)
    expect(page.locator("h1")).to_contain_text(iid)
    assert operator.clicks == 2
    check_access(page)
    operator.click(page.get_by_role("link", name=t("bus.journey")))
    for component, named in (("intake", f"prices-{language}.csv"), ("bus", iid)):
        step = page.get_by_role("row", name=named)
        expect(step).to_contain_text(t(f"nav.{component}"))
    assert operator.clicks == 3
    check_access(page)
    page.goto(f"{console.url}/console/intake")
    expect(page.locator(".pipeline")).to_contain_text(f"prices-{language}.csv")
    secrets = look(console, "select detail::text from console.audit where action ~ 'intake'")
    assert password_sftp.password not in str(secrets)


def test_a_server_that_refuses_is_told_in_words(
    open_page: OpenPage, console: RunningConsole, password_sftp: PasswordSftp
) -> None:
    page = open_page("/intake/servers", role="operator")
    press(page, "add-server")
    for name, value in (
        ("name", "stranger"),
        ("host", "127.0.0.1"),
        ("port", str(password_sftp.port)),
        ("username", password_sftp.username),
        ("password", "wrong"),
    ):
        page.locator(f'[data-test="server-{name}"]').fill(value)
    press(page, "server-save")
    expect(page.locator("h1")).to_have_text("Server stranger")
    press(page, "test-server")
    expect(page.locator(".q-notification.bg-negative").first).to_be_visible()
