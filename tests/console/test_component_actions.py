"""What operators do to components, in a real browser: it is done, shown and written down."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from playwright.sync_api import Page, expect

from postroad.alerts import raise_alert
from postroad.bridge import operations as bridge_operations
from postroad.bridge.addresses import Addresses
from postroad.bus import Bus
from postroad.intake import operations as intake_operations
from postroad.intake.credentials import Credentials
from postroad.postgres import run_blocking
from postroad.settings import BridgeDefinition
from postroad.vault import Vault, create_key_file
from tests.console.stage import look, press, run_apart
from tests.fixtures.console import OpenPage, RunningConsole


def audited(console: RunningConsole, action: str, target: str) -> list[tuple[str, str]]:
    return look(
        console,
        "select account, outcome from console.audit where action = %s and target = %s order by id",
        action,
        target,
    )


def show_event(page: Page, console: RunningConsole, event: int) -> None:
    page.goto(f"{console.url}/console/coordination")
    page.get_by_role("link", name=str(event), exact=True).click()
    expect(page.locator(".badge", has_text="parked").first).to_be_visible()


def test_a_parked_event_is_tried_again_and_another_one_cancelled(
    open_page: OpenPage, console: RunningConsole
) -> None:
    lab = console.lab
    change = """insert into "DummyItem" ("Id", "Name") values ({}, 'longer than five')"""
    lab.run("lists", 'alter table "DummyItem" alter "Name" type varchar(5)')
    first = lab.write(change.format(1))
    lab.settle()
    assert first is not None
    page = open_page("/coordination", role="operator")
    show_event(page, console, first)
    # The row as it was and as it became, side by side.
    expect(page.locator(".diff ins").first).to_be_visible()
    lab.run("lists", 'alter table "DummyItem" alter "Name" type varchar(50)')
    press(page, "retry")
    press(page, "confirm")
    expect(page.locator(".q-notification").first).to_be_visible()
    lab.settle()
    assert lab.state(first) == "Committed"
    expect(page.locator(".badge", has_text="committed").first).to_be_visible()

    lab.run("lists", 'alter table "DummyItem" alter "Name" type varchar(16)')
    second = lab.write(change.format(2).replace("five", "sixteen letters"))
    lab.settle()
    assert second is not None
    show_event(page, console, second)
    press(page, "cancel")
    press(page, "confirm")
    expect(page.locator(".q-notification").first).to_be_visible()
    lab.settle()
    assert lab.state(second) == "Canceled"
    lab.assert_same()
    assert audited(console, "coordination.retry", str(first)) == [("operator", "done")]
    assert audited(console, "coordination.cancel", str(second)) == [("operator", "done")]


def test_a_bridge_is_paused_and_resumed_from_its_row(
    open_page: OpenPage, console: RunningConsole
) -> None:
    for dsn in (console.dsn, console.lab.dsns["coordinator"]):
        with Bus(dsn) as bus:
            bus.create_queue("carried", payload="jsonb")
    definition = BridgeDefinition(
        source="home", target=console.lab.dsns["coordinator"], queue="carried"
    )
    run_apart(bridge_operations.add(Addresses(console.dsn), definition, "over"))
    page = open_page("/bridges", role="operator")
    row = page.get_by_role("row", name="over")
    for verb, state in (("pause", "paused"), ("resume", "running")):
        row.locator(f'[data-test="{verb}-row"]').click()
        expect(row.locator(".badge").first).to_have_text(state)
        assert audited(console, f"bridge.{verb}", "over") == [("operator", "done")]
    # Viewers see the same table without its buttons.
    watching = open_page("/bridges", role="viewer")
    expect(watching.get_by_role("row", name="over")).to_be_visible()
    assert watching.locator("[data-verb]").count() == 0
    # What a page does not offer cannot be had by saying so to its socket.
    watching.evaluate("emitEvent('row-action', {verb: 'pause', key: 'over'})")
    expect(watching.locator(".q-notification").first).to_contain_text("does not allow")
    assert audited(console, "bridge.pause", "over")[-1] == ("viewer", "refused")
    run_apart(bridge_operations.remove(Addresses(console.dsn), "over"))


def test_one_alert_is_acknowledged_then_all_of_them(
    open_page: OpenPage, console: RunningConsole
) -> None:
    with psycopg.connect(console.dsn) as connection:
        for key in ("seen/one", "seen/two"):
            raise_alert(connection, key, room="bus", severity="error", title=f"trouble {key}")
    page = open_page("/alerts", role="operator")
    one, two = (page.get_by_role("row", name=f"trouble seen/{each}") for each in ("one", "two"))
    one.locator('[data-test="own-row"]').click()
    expect(one).to_contain_text("operator")
    expect(two.locator('[data-test="own-row"]')).to_be_visible()
    press(page, "ack-all")
    press(page, "confirm")
    expect(two).to_contain_text("operator")
    assert audited(console, "alerts.own", "seen/one") == [("operator", "done")]
    assert audited(console, "alerts.ack", "alerts")[-1] == ("operator", "done")


@pytest.fixture
def failed_file(console: RunningConsole) -> Iterator[int]:
    """Make a server that nobody looks at, with a file that failed."""
    with psycopg.connect(console.dsn) as connection:
        vault = Vault.from_file(create_key_file(console.folder / "vault.key"))
        made = run_blocking(
            console.dsn,
            intake_operations.create_server,
            vault,
            Credentials(password="secret"),
            {"name": "resting", "host": "127.0.0.1", "port": 1, "username": "nobody"},
        )
        row = connection.execute(
            "insert into intake.imported_files"
            " (server_id, filename, path, filesize, mtime, version, status, error_message)"
            " values (%s, 'torn.csv', 'torn.csv', 10, 1, 1, 'failed', 'the checksum differs')"
            " returning id",
            (made["id"],),
        ).fetchone()
        assert row is not None
    yield row[0]
    run_blocking(console.dsn, intake_operations.delete_server, "resting")


def test_a_failed_file_is_tried_again_and_its_server_paused(
    open_page: OpenPage, console: RunningConsole, failed_file: int
) -> None:
    page = open_page("/intake/servers/resting", role="operator")
    press(page, "pause")
    press(page, "confirm")
    expect(page.locator(".badge", has_text="paused")).to_be_visible()
    page.goto(f"{console.url}/console/intake/files?status=failed")
    expect(page.locator("tbody")).to_contain_text("the checksum differs")
    page.get_by_role("link", name="torn.csv").click()
    press(page, "retry")
    press(page, "confirm")
    expect(page.locator(".badge", has_text="discovered")).to_be_visible()
    state = "select status from intake.imported_files where id = %s"
    assert look(console, state, failed_file) == [("discovered",)]
    page.goto(f"{console.url}/console/intake/servers/resting")
    press(page, "resume")
    press(page, "confirm")
    expect(page.locator(".badge", has_text="paused")).to_have_count(0)
    assert audited(console, "intake.retry", "torn.csv") == [("operator", "done")]
    assert audited(console, "intake.pause", "resting") == [("operator", "done")]


def test_a_parked_event_is_skipped_at_its_reader(
    open_page: OpenPage, console: RunningConsole
) -> None:
    lab = console.lab
    lab.run("lists", 'alter table "DummyItem" alter "Name" type varchar(16)')
    event = lab.write(
        """insert into "DummyItem" ("Id", "Name") values (3, 'longer than sixteen')"""
    )
    lab.settle()
    assert event is not None
    page = open_page("/coordination", role="operator")
    show_event(page, console, event)
    press(page, "skip-row")
    expect(page.locator(".q-dialog")).to_contain_text("lists")
    press(page, "confirm")
    expect(page.locator(".q-notification").first).to_be_visible()
    lab.settle()
    assert lab.state(event) == "Committed"
    expect(page.locator('[data-test="skip-row"]')).to_have_count(0)
    assert audited(console, "coordination.skip", str(event)) == [("operator", "done")]
    lab.write('delete from "DummyItem"')
    lab.run("lists", 'alter table "DummyItem" alter "Name" type varchar(50)')
    lab.settle()
    lab.assert_same()
