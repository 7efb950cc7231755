"""Dialogs and action buttons in a real browser: what was typed stays, actions follow the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page, expect

from postroad.bus import Bus, Saga, Sagas
from postroad.console.catalogue import texts
from postroad.intake import operations as intake_operations
from postroad.intake.credentials import Credentials
from postroad.postgres import run_blocking
from postroad.testing import wait_until
from postroad.vault import Vault, create_key_file
from tests.console.clicks import settle_animations
from tests.console.stage import LANGUAGES, Stage, look, press
from tests.console.test_every_page import faults
from tests.fixtures.console import OpenPage, RunningConsole


@pytest.fixture
def bus(console: RunningConsole) -> Iterator[Bus]:
    with Bus(console.dsn) as bus:
        yield bus


def typed(page: Page) -> str:
    return page.locator('[data-test="post-data"]').input_value()


@pytest.mark.parametrize("language", ["en", "ru"])
def test_invalid_input_leaves_the_dialog_open_with_the_text(
    open_page: OpenPage, bus: Bus, language: str
) -> None:
    bus.create_queue("dialog_posts", payload="jsonb")
    page = open_page("/bus/queues/dialog_posts", role="operator", language=language)
    press(page, "post")
    page.locator('[data-test="post-data"]').fill('{"number": 4711')
    press(page, "post-send")
    notice = page.locator(".q-notification").first
    described = texts(language).entries["problem.MB011"].partition("{text}")[0]
    expect(notice).to_contain_text(described)
    # The error and its hint are told apart, and the button can be read on the colored background.
    expect(notice).to_contain_text("; for example")
    expect(notice.locator(".q-btn__content")).to_have_css("color", "rgb(255, 255, 255)")
    assert typed(page) == '{"number": 4711'
    page.locator('[data-test="post-data"]').fill('{"number": 4711}')
    press(page, "post-send")
    expect(page.locator(".dialog")).to_have_count(0)
    assert [message.data for message in bus.consume("dialog_posts")] == [{"number": 4711}]


def test_a_session_that_ends_leaves_the_dialog_open_with_the_text(
    open_page: OpenPage,
    bus: Bus,
    console: RunningConsole,
    signed_in: dict[tuple[str, str], list[Any]],
) -> None:
    bus.create_queue("dialog_posts", payload="jsonb")
    page = open_page("/bus/queues/dialog_posts", role="operator")
    press(page, "post")
    page.locator('[data-test="post-data"]').fill('{"long": "text"}')
    with psycopg.connect(console.dsn) as connection:
        connection.execute("delete from console.session where account = 'operator'")
    # The next test has to sign in again.
    del signed_in[console.url, "operator"]
    expect(page.locator(".banner")).to_contain_text("session has ended")
    press(page, "post-send")
    expect(page.locator(".q-notification").first).to_contain_text("session has ended")
    assert typed(page) == '{"long": "text"}'
    assert not bus.peek("dialog_posts")


def test_actions_of_a_saga_follow_its_state_and_a_stuck_one_links_its_dead_compensation(
    open_page: OpenPage, bus: Bus
) -> None:
    for name in ("rooms", "no_rooms", "flights"):
        bus.create_queue(f"act_{name}", payload="jsonb")
    plan = (
        Saga("tour", data={"tour": 1})
        .step("room", do="act_rooms", undo="act_no_rooms")
        .step("flight", do="act_flights", after=["room"])
    )
    saga_id = plan.start(bus)
    bus.consume("act_rooms")
    page = open_page(f"/bus/sagas/{saga_id}", role="operator")
    cancel, retry = (page.locator(f'[data-test="{verb}"]') for verb in ("cancel", "retry"))
    expect(cancel).to_be_visible()
    expect(retry).to_be_hidden()
    Sagas(bus).cancel(saga_id, "tests")
    (held,) = wait_until(lambda: bus.lease("act_no_rooms"), what="the compensation is there")
    bus.nack(held, error="the hotel does not answer", park=True)
    expect(retry).to_be_visible()
    expect(cancel).to_be_hidden()
    row = page.get_by_role("row", name="room")
    expect(row.locator("a.mono")).to_have_text(held.iid)
    bus.redrive("act_no_rooms")
    wait_until(lambda: bus.consume("act_no_rooms"), what="the room is undone")
    expect(retry).to_be_hidden()
    expect(cancel).to_be_hidden()


@pytest.fixture
def server(console: RunningConsole) -> Iterator[str]:
    vault = Vault.from_file(create_key_file(console.folder / "vault.key"))
    run_blocking(
        console.dsn,
        intake_operations.create_server,
        vault,
        Credentials(password="secret"),
        {"name": "editable", "host": "127.0.0.1", "port": 1, "username": "nobody"},
    )
    yield "editable"
    with psycopg.connect(console.dsn) as connection:
        connection.execute("delete from intake.sftp_servers where name in ('editable', 'renamed')")


def test_a_server_is_changed_given_new_credentials_and_deleted(
    open_page: OpenPage, console: RunningConsole, server: str
) -> None:
    stored = "select directory, credentials from intake.sftp_servers where name = %s"
    ((_, before),) = look(console, stored, server)
    page = open_page(f"/intake/servers/{server}", role="operator")
    press(page, "change-server")
    page.locator('[data-test="server-port"]').fill("0")
    press(page, "server-save")
    expect(page.locator(".q-notification").first).to_contain_text("65535")
    page.locator('[data-test="server-port"]').fill("1")
    page.locator('[data-test="server-directory"]').fill("/incoming")
    press(page, "server-save")
    expect(page.locator(".dialog")).to_have_count(0)
    assert look(console, stored, server) == [("/incoming", before)]
    press(page, "change-server")
    page.locator('[data-test="server-name"]').fill("renamed")
    page.locator('[data-test="server-password"]').fill("another secret")
    press(page, "server-save")
    page.wait_for_url("**/intake/servers/renamed")
    ((_, after),) = look(console, stored, "renamed")
    assert after != before
    press(page, "remove")
    press(page, "confirm")
    page.wait_for_url("**/intake/servers")
    assert look(console, stored, "renamed") == []


def test_a_failed_connection_test_is_not_followed_by_a_success(
    open_page: OpenPage, server: str
) -> None:
    page = open_page(f"/intake/servers/{server}", role="operator")
    press(page, "test-server")
    expect(page.locator(".q-notification.bg-negative").first).to_be_visible()
    assert page.locator(".q-notification.bg-positive").count() == 0


def test_changing_an_account_keeps_the_role_and_the_password(
    open_page: OpenPage, console: RunningConsole
) -> None:
    with psycopg.connect(console.dsn) as connection:
        connection.execute("select console.put_account('colleague', 'operator', 'a hash')")
    stored = "select role, password_hash from console.account where name = 'colleague'"
    page = open_page("/accounts")
    row = page.get_by_role("row", name="colleague")
    row.locator('[data-test="change-account-row"]').click()
    press(page, "account-save")
    expect(page.locator(".dialog")).to_have_count(0)
    assert look(console, stored) == [("operator", "a hash")]
    row.locator('[data-test="change-account-row"]').click()
    page.locator('[data-test="account-password"]').fill("short")
    press(page, "account-save")
    expect(page.locator(".q-notification.bg-negative").first).to_be_visible()
    page.locator('[data-test="account-password"]').fill("long enough for all")
    press(page, "account-save")
    expect(page.locator(".dialog")).to_have_count(0)
    ((role, hashed),) = look(console, stored)
    assert role == "operator"
    assert hashed.startswith("$argon2id$")
    row.locator('[data-test="drop-account-row"]').click()
    press(page, "confirm")
    expect(row).to_have_count(0)


# One of each kind, by the page and the button that opens it.
KINDS = {
    "reason": ("bus", "queue", "pause"),
    "settings": ("bus", "queue", "limit"),
    "document": ("bus", "queue", "schema"),
    "post": ("bus", "queue", "post"),
    "danger": ("bus", "message", "take"),
    "choice": ("bus", "message", "move"),
    "all-that-match": ("bus", "dead-messages", "redrive-all"),
    "all-that-match-to": ("bus", "dead-list", "move-all"),
    "group": ("bus", "dead", "redrive-row"),
    "outcome": ("components", "process", "resolve-aborted"),
    "server": ("components", "intake-servers", "add-server"),
    "credentials": ("components", "server", "renew"),
    "account": ("context", "accounts", "change-account-row"),
    "account-question": ("context", "accounts", "drop-account-row"),
    "mute": ("context", "alerts", "mute-row"),
}


@pytest.mark.timeout(300)
@LANGUAGES
def test_each_kind_of_open_dialog_is_without_faults(
    open_page: OpenPage, stage: Stage, console: RunningConsole, language: str, width: int
) -> None:
    page = open_page("/alerts", language=language, width=width)
    found = []
    for kind, (component, name, button) in KINDS.items():
        page.goto(f"{console.url}/console{stage.path(component, name)}")
        page.wait_for_selector(".title h1")
        press(page, button)
        dialog = page.locator(".dialog")
        expect(dialog).to_be_visible()
        settle_animations(page)
        # What is behind a modal dialog is checked without it.
        found += [f"{kind}: {fault}" for fault in faults(page, ".q-dialog")]
        dialog.get_by_role("button", name=texts(language)("common.cancel")).click()
        expect(dialog).to_have_count(0)
    assert not found, "\n".join(found)
