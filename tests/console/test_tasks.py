"""Tasks of operators in a real browser, from the overview, with the number of their clicks."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest
from playwright.sync_api import expect

from postroad.alerts import raise_alert
from postroad.bus import Bus, LeasedMessage, Worker
from postroad.exchange import operations as exchange_operations
from postroad.intake import operations as intake_operations
from postroad.intake.credentials import Credentials
from postroad.postgres import run_blocking
from postroad.testing import wait_until
from postroad.vault import Vault, create_key_file
from postroad.web.tokens import hash_token
from tests.console.clicks import Operator, check_access
from tests.console.stage import LANGUAGES, Stage, look
from tests.fixtures.console import OpenPage, RunningConsole


@pytest.fixture
def vault(console: RunningConsole) -> Vault:
    return Vault.from_file(create_key_file(console.folder / "vault.key"))


@pytest.fixture
def server(console: RunningConsole, vault: Vault) -> Iterator[str]:
    """Make an SFTP server that nobody looks at."""
    values = {"name": "rotated", "host": "127.0.0.1", "port": 3, "username": "nobody"}
    password = Credentials(password="secret")
    run_blocking(console.dsn, intake_operations.create_server, vault, password, values)
    yield "rotated"
    run_blocking(console.dsn, intake_operations.delete_server, "rotated")


@LANGUAGES
def test_an_alert_is_muted_and_taken_in_three_and_two_clicks(
    open_page: OpenPage, console: RunningConsole, language: str, width: int
) -> None:
    key = f"muted/{language}"
    with psycopg.connect(console.dsn) as connection:
        raise_alert(connection, key, room="bus", severity="error", title=f"trouble {key}")
    page = open_page("/alerts", role="operator", language=language, width=width)
    operator = Operator(page)
    row = page.get_by_role("row", name=f"trouble {key}")
    operator.click(row.locator('[data-test="mute-row"]'))
    page.locator('[data-test="duration"]').fill("90")
    operator.click("confirm")
    # Without a reason nothing happens, and what was typed stays.
    expect(page.locator(".q-notification").first).to_be_visible()
    page.locator('[data-test="reason"]').fill("the disk is replaced")
    operator.click("confirm")
    expect(row).to_contain_text("operator (console): the disk is replaced")
    expect(row.locator(".badge.bad")).to_have_count(0)
    assert operator.clicks == 3
    ((reason, minutes),) = look(
        console,
        "select mute_reason, round(extract(epoch from muted_until - now()) / 60)"
        " from alerts.handled where key = %s",
        key,
    )
    assert (reason, minutes) == ("the disk is replaced", 90)
    operator.click(row.locator('[data-test="own-row"]'))
    expect(row.locator('[data-test="own-row"]')).to_have_count(0)
    operator.click(row.locator('[data-test="unmute-row"]'))
    expect(row).not_to_contain_text("the disk is replaced")
    expect(row).to_contain_text("operator (console)")
    check_access(page)


def test_dead_messages_are_taken_like_an_alert_and_muted_by_their_key(
    open_page: OpenPage, console: RunningConsole
) -> None:
    with Bus(console.dsn) as bus:
        bus.create_queue("owned_dead", payload="jsonb")
        bus.post("owned_dead", {"n": 1})
        (held,) = bus.lease("owned_dead")
        bus.nack(held, error="no such customer", park=True)
        page = open_page("/alerts", role="operator")
        row = page.get_by_role("row", name=re.compile("owned_dead"))
        # The first one died a moment ago.
        expect(row.locator("time").first).to_be_visible()
        row.locator('[data-test="own-row"]').click()
        expect(row).to_contain_text("operator (console)")
        # Solved, and back again: whoever took the first ones need not know about these.
        bus.drop_queue("owned_dead")
    overview = open_page("/")
    expect(overview.locator(".timeline", has_text="owned_dead")).to_have_count(0)


def test_the_token_of_a_client_is_renewed_in_four_clicks_and_shown_once(
    open_page: OpenPage, console: RunningConsole
) -> None:
    run_blocking(console.dsn, exchange_operations.add_client, "rotated-erp", databases=None)
    page = open_page("/", role="admin")
    operator = Operator(page)
    operator.go("/exchange", "/exchange/clients")
    row = page.get_by_role("row", name="rotated-erp")
    operator.click(row.locator('[data-test="renew-row"]'))
    operator.click("confirm")
    shown = page.locator('[data-test="secret"]')
    expect(shown).to_have_text(re.compile("^px_"))
    assert operator.clicks == 4
    token = shown.inner_text()
    hashes = "select secret_hash from exchange.client where id = 'rotated-erp'"
    assert look(console, hashes) == [(hash_token(token),)]
    recorded = look(
        console,
        "select detail::text, outcome from console.audit"
        " where action = 'exchange.renew' and target = 'rotated-erp'",
    )
    assert [outcome for _, outcome in recorded] == ["done"]
    assert token not in json.dumps(recorded)
    page.locator('[data-test="confirm"]').last.click()
    expect(shown).to_have_count(0)
    check_access(page)
    # Operators see clients, but not this button.
    page = open_page("/exchange/clients", role="operator")
    expect(page.get_by_role("row", name="rotated-erp")).to_be_visible()
    expect(page.locator('[data-test="renew-row"]')).to_have_count(0)


@LANGUAGES
def test_the_credentials_of_a_server_are_renewed_and_the_public_key_is_shown_once(
    open_page: OpenPage,
    console: RunningConsole,
    vault: Vault,
    server: str,
    language: str,
    width: int,
) -> None:
    stored = f"select credentials from intake.sftp_servers where name = '{server}'"
    before = look(console, stored)
    page = open_page(f"/intake/servers/{server}", role="operator", language=language, width=width)
    operator = Operator(page)
    operator.click("renew")
    operator.click("confirm")
    shown = page.locator('[data-test="secret"]')
    expect(shown).to_contain_text(re.compile(r"^\s*ssh-ed25519 \S+ postroad rotated\s*$"))
    assert operator.clicks == 2
    assert look(console, stored) != before
    ((sealed,),) = look(console, stored)
    (key,) = Credentials.open(vault, sealed).client_keys()
    assert key.export_public_key().decode().strip() == shown.inner_text().strip()
    page.locator('[data-test="confirm"]').last.click()
    # A password that the operator of the server has chosen.
    operator.click("renew")
    page.locator('[data-test="password"]').fill("chosen by them")
    operator.click("confirm")
    wait_until(
        lambda: Credentials.open(vault, look(console, stored)[0][0]).password is not None,
        what="the password is stored",
    )
    assert "chosen" not in str(look(console, "select * from console.audit"))


def test_who_holds_a_message_is_seen_in_three_clicks(
    open_page: OpenPage, console: RunningConsole
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    with Bus(console.dsn) as bus:
        bus.create_queue("held_long", payload="jsonb")
        worker = Worker(console.dsn)

        @worker.handler("held_long", mode="lease", concurrency=2)
        def handle(message: LeasedMessage) -> None:
            begun.set()
            may_end.wait(60)

        worker.start()
        iid = bus.post("held_long", {"n": 1})
        assert begun.wait(60)
        page = open_page("/bus/queues/held_long", role="operator")
        operator = Operator(page)
        cell = page.locator('a[href*="state=leased"]').first
        expect(cell).to_have_text("1")
        operator.click(cell)
        operator.click(page.get_by_role("link", name=iid))
        holder = page.get_by_role("row", name="default")
        expect(holder).to_contain_text(f"{socket.gethostname()}, PID {os.getpid()}")
        operator.click(holder.get_by_role("link"))
        row = page.get_by_role("row", name="held_long").first
        expect(row).to_contain_text("running")
        assert operator.clicks == 3
        check_access(page)
        may_end.set()
        worker.stop()
        left = "select count(*) from mbus.workers where queue = 'held_long'"
        assert look(console, left) == [(0,)]
        bus.drop_queue("held_long")


@LANGUAGES
def test_the_last_hour_and_yesterday_are_one_click_away(
    open_page: OpenPage, console: RunningConsole, language: str, width: int
) -> None:
    queue = f"past_{language}"
    with Bus(console.dsn) as bus:
        bus.create_queue(queue, payload="jsonb")
        with psycopg.connect(console.dsn) as connection:
            connection.execute(
                "insert into mbus.traffic (consumer_id, since, posted, consumed, died, waiting)"
                " select c.id, date_trunc('minute', now()) - n, 40, 30, 1, 7"
                " from mbus.consumer c join mbus.queue q on q.id = c.queue_id and q.name = %s"
                " cross join (values (interval '10 min'), ('20 min'), ('30 hours')) v (n)",
                (queue,),
            )
        page = open_page(f"/bus/queues/{queue}", role="viewer", language=language, width=width)
        operator = Operator(page)
        for span, posted in (("hour", "80"), ("days", "120")):
            operator.click(page.locator(f'a[href*="span={span}"]'))
            page.wait_for_url(re.compile(f"span={span}"))
            figure = page.locator(".figures").last.locator(".figure").first
            expect(figure.locator(".value")).to_have_text(posted)
            for chart in page.locator(".chart canvas").all():
                chart.wait_for(state="visible")
        assert operator.clicks == 2
        check_access(page)
        bus.drop_queue(queue)


def test_a_file_leads_to_its_notice_and_to_its_consumers_in_two_clicks(
    open_page: OpenPage, console: RunningConsole, stage: Stage
) -> None:
    with Bus(console.dsn) as bus:
        if "file_events" not in {one.queue for one in bus.queues()}:
            bus.create_queue("file_events", payload="jsonb")
        bus.create_consumer("file_events", "bookkeeping")
        iid = bus.post("file_events", {"file_id": 1})
        (taken,) = bus.consume("file_events", "bookkeeping")
        assert taken.iid == iid
        with psycopg.connect(console.dsn) as connection:
            connection.execute(
                "update intake.imported_files set notice = %s, store = 'folder',"
                " object_key = 'shop/prices.csv' where filename = 'prices.csv'",
                (iid,),
            )
        page = open_page("/intake/files", role="viewer")
        operator = Operator(page)
        operator.click(page.get_by_role("link", name="prices.csv"))
        expect(page.locator("#main")).to_contain_text("shop/prices.csv")
        handled = page.get_by_role("row", name="bookkeeping")
        expect(handled).to_contain_text(re.compile("consumed|retained"))
        expect(page.get_by_role("row", name="default")).to_contain_text("ready")
        operator.click(page.get_by_role("link", name=iid))
        expect(page.locator("h1")).to_contain_text(iid)
        assert operator.clicks == 2
        check_access(page)
        bus.drop_consumer("file_events", "bookkeeping")
