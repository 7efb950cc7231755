"""The tasks of operators in a real browser, with the number of their clicks, in both languages.

docs/components/console.md has the table. Typing and the keys Ctrl-K and Enter are no clicks.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import expect

from postroad.alerts import raise_alert
from postroad.bus import Bus, LeasedMessage, Message, Worker
from postroad.bus.measures import SECONDS
from postroad.bus.resources import HANDLING
from postroad.console.catalogue import texts
from postroad.exchange import operations as exchange_operations
from postroad.intake import operations as intake_operations
from postroad.intake.credentials import Credentials
from postroad.operate import Column
from postroad.postgres import run_blocking
from postroad.testing import wait_until
from postroad.vault import Vault, create_key_file
from postroad.web.tokens import hash_token
from tests.console.clicks import Operator, check_access
from tests.console.stage import LANGUAGES, Stage, dead_messages, look, press
from tests.fixtures.console import OpenPage, RunningConsole
from tests.fixtures.exchange_server import ExchangeProcess


@pytest.fixture
def bus(console: RunningConsole) -> Iterator[Bus]:
    with Bus(console.dsn) as bus:
        yield bus


@pytest.fixture
def queue(bus: Bus, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "t_" + re.sub(r"\W+", "_", request.node.name.lower())[-22:].strip("_")
    bus.create_queue(name, payload="jsonb")
    yield name
    bus.drop_queue(name)


def title(column: Column, language: str) -> str:
    return column.title_ru if language == "ru" else column.title


@LANGUAGES
def test_all_messages_of_one_error_are_redriven_in_three_clicks(
    open_page: OpenPage, bus: Bus, queue: str, language: str, width: int
) -> None:
    dead_messages(bus, queue, ["no customer 1", "no customer 2", "out of paper"])
    page = open_page("/bus", role="operator", language=language, width=width)
    operator = Operator(page)
    operator.click(page.locator("nav.tabs a[href$='/bus/dead']"))
    row = page.locator("tr", has_text=queue).filter(has_text="no customer ?")
    button = row.locator('[data-test="redrive-row"]')
    expect(button).to_contain_text("2")
    operator.click(button)
    expect(page.locator('[data-test="confirm"]')).to_contain_text("2")
    check_access(page)
    operator.click("confirm")
    expect(row).to_have_count(0)
    assert operator.clicks == 3
    assert sorted(message.data["n"] for message in bus.consume(queue, amount=10)) == [0, 1]
    assert [one.error for one in bus.dead(queue)] == ["out of paper"]
    check_access(page)


@LANGUAGES
def test_a_dead_message_is_edited_and_posted_again_in_four_clicks(
    open_page: OpenPage, bus: Bus, queue: str, language: str, width: int
) -> None:
    dead_messages(bus, queue, ["no such customer"])
    (dead,) = bus.dead(queue)
    page = open_page("/bus/dead", role="operator", language=language, width=width)
    operator = Operator(page)
    row = page.locator("tr", has_text=queue)
    operator.click(row.get_by_role("link", name="no such customer"))
    operator.click(page.get_by_role("link", name=dead.iid))
    # Its failed attempts are a timeline.
    failed = page.locator(".timeline li")
    expect(failed).to_have_count(1)
    expect(failed).to_contain_text(f"default: {texts(language)('bus.attempt', number=1)}")
    expect(failed).to_contain_text("no such customer")
    operator.click("edit")
    page.locator('[data-test="edit-data"]').fill("{")
    press(page, "edit-send")
    expect(page.locator(".q-notification")).to_contain_text("JSON")
    page.locator('[data-test="edit-data"]').fill('{"n": 4711}')
    check_access(page)
    operator.click("edit-send")
    expect(page.locator("pre.data").first).to_contain_text("4711")
    assert operator.clicks == 4
    expect(page.locator("#main")).to_contain_text("operator (console)")
    expect(page.locator('[data-test="edit"]')).to_be_hidden()
    expect(failed).to_have_count(0)
    (message,) = bus.consume(queue)
    assert (message.iid, message.data) == (dead.iid, {"n": 4711})
    # The original stays when the message is gone.
    expect(page.locator(".empty")).to_be_visible()
    expect(page.locator("#main")).to_contain_text('{"n": 0}')
    check_access(page)


@LANGUAGES
def test_a_consumer_is_paused_in_three_clicks_and_resumed_in_two(
    open_page: OpenPage, bus: Bus, queue: str, language: str, width: int
) -> None:
    bus.post(queue, {"n": 1})
    page = open_page(f"/bus?search={queue}", role="operator", language=language, width=width)
    operator = Operator(page)
    operator.go(f"/bus/queues/{queue}")
    operator.click("pause")
    page.locator('[data-test="reason"]').fill("the ERP is down")
    check_access(page)
    operator.click("confirm")
    expect(page.locator("tbody").first).to_contain_text("the ERP is down")
    expect(page.locator("tbody").first).to_contain_text("operator (console)")
    assert operator.clicks == 3
    assert bus.consume(queue) == []
    expect(page.locator('[data-test="pause"]').first).to_be_hidden()
    operator.click("resume")
    operator.click("confirm")
    expect(page.locator('[data-test="pause"]').first).to_be_visible()
    assert operator.clicks == 5
    assert len(bus.consume(queue)) == 1
    check_access(page)


@LANGUAGES
def test_a_whole_queue_is_paused_in_two_clicks(
    open_page: OpenPage, bus: Bus, queue: str, language: str, width: int
) -> None:
    bus.create_consumer(queue, "audit")
    bus.post(queue, {"n": 1})
    page = open_page(f"/bus/queues/{queue}", role="operator", language=language, width=width)
    operator = Operator(page)
    whole = page.get_by_role("button", name=texts(language)("bus.pause_queue"))
    operator.click(whole)
    page.locator('[data-test="reason"]').fill("the month is closed")
    check_access(page)
    operator.click("confirm")
    for consumer in ("default", "audit"):
        line = page.locator("tbody tr", has_text=consumer).first
        expect(line).to_contain_text("the month is closed")
    assert operator.clicks == 2
    expect(whole).to_be_hidden()
    assert bus.consume(queue) == bus.consume(queue, "audit") == []
    press(page, "resume")
    press(page, "confirm")
    expect(whole).to_be_visible()
    assert len(bus.consume(queue)) == len(bus.consume(queue, "audit")) == 1


@pytest.fixture
def erp(console: RunningConsole, console_exchange: ExchangeProcess) -> Iterator[httpx.Client]:
    """Make an ERP instance, a client of the exchange."""
    # An ERP has one process at a time, and that of an earlier test may still be open.
    name = f"journey-erp-{secrets.token_hex(4)}"
    token = run_blocking(console.dsn, exchange_operations.add_client, name, databases=None).token
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{console.exchange_url}/exchange/v1"
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        yield client
    run_blocking(console.dsn, exchange_operations.remove_client, name)


@LANGUAGES
def test_an_order_is_searched_in_all_components_and_its_journey_is_seen_in_one_click(
    open_page: OpenPage,
    console: RunningConsole,
    erp: httpx.Client,
    bus: Bus,
    queue: str,
    language: str,
    width: int,
) -> None:
    """The bus hands the order to the exchange, and the ERP takes it into a process."""
    t, order, trace = texts(language), f"order-of-{language}", secrets.token_hex(16)
    bus.alter_queue(queue, retain=timedelta(days=1), track="order_id")
    database = f"journey-{language}"
    route = (f"to-{database}", "in", queue)
    run_blocking(console.dsn, exchange_operations.add_route, *route, database=database)
    headers = {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
    iid = bus.post(queue, {"order_id": order}, headers=headers)
    arrived = "select id from exchange.message where database_id = %s"
    ((message,),) = wait_until(
        lambda: look(console, arrived, database), what="the order is in the mailbox"
    )

    def begin() -> str | None:
        # Without a process while the file of the message is not in its folder yet.
        attempt = {"database": database, "attempt": secrets.token_hex(8)}
        begun = erp.post("/processes", json=attempt).json()
        return str(begun["process"]["id"]) if "process" in begun else None

    process = wait_until(begin, what="the ERP takes the order")

    def check_path() -> None:
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(3)
        expected = (("bus", iid), ("exchange", message), ("exchange", process))
        for component, name in expected:
            row = rows.filter(has=page.locator(f'a[title="{name}"], a:text-is("{name}")'))
            expect(row).to_have_count(1)
            expect(row).to_contain_text(t(f"nav.{component}"))
        expect(rows.nth(0)).to_contain_text(t.state("retained"))
        expect(rows.nth(1)).to_contain_text(t.state("leased"))

    page = open_page("/", role="viewer", language=language, width=width)
    page.keyboard.press("Control+k")
    page.keyboard.type(order)
    page.keyboard.press("Enter")
    check_path()
    check_access(page)
    # The same path from the page of the message, by its iid and by its trace.
    page.goto(f"{console.url}/console/bus/messages/{iid}")
    for link in (t("bus.journey"), trace):
        operator = Operator(page)
        operator.click(page.get_by_role("link", name=link))
        page.wait_for_url(re.compile("/find"))
        check_path()
        assert operator.clicks == 1
        page.go_back()
    check_access(page)
    erp.post(f"/processes/{process}/rollback", json={})
    run_blocking(console.dsn, exchange_operations.remove_route, route[0])


@LANGUAGES
def test_how_long_handlers_take_is_seen_in_one_click(
    open_page: OpenPage, console: RunningConsole, bus: Bus, queue: str, language: str, width: int
) -> None:
    handled = threading.Semaphore(0)
    worker = Worker(console.dsn)

    @worker.handler(queue)
    def handle(message: Message, connection: psycopg.Connection[Any]) -> None:
        handled.release()

    bus.post_many(queue, [{"n": n} for n in range(5)])
    worker.start()
    for _ in range(5):
        assert handled.acquire(timeout=60)
    # A worker that ends sends what it has measured.
    worker.stop()
    names = "handling_median", "handling_high", "wait_median", "wait_high"
    measured = f"select {', '.join(names)} from mbus.handling where queue = %s and handled = 5"
    (times,) = look(console, measured, queue)
    page = open_page(f"/bus?search={queue}", role="viewer", language=language, width=width)
    operator = Operator(page)
    operator.go(f"/bus/queues/{queue}")
    assert operator.clicks == 1
    for name, value in zip(names, times, strict=True):
        label = title(HANDLING.column(name), language)
        shown = page.locator(f'td[data-label="{label}"]')
        expect(shown).to_have_text(texts(language).age(value))
    check_access(page)


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


@LANGUAGES
def test_the_token_of_a_client_is_renewed_in_three_clicks_and_shown_once(
    open_page: OpenPage, console: RunningConsole, language: str, width: int
) -> None:
    name = f"rotated-{language}"
    run_blocking(console.dsn, exchange_operations.add_client, name, databases=None)
    page = open_page("/exchange", role="admin", language=language, width=width)
    operator = Operator(page)
    operator.go("/exchange/clients")
    row = page.get_by_role("row", name=name)
    operator.click(row.locator('[data-test="renew-row"]'))
    operator.click("confirm")
    shown = page.locator('[data-test="secret"]')
    expect(shown).to_have_text(re.compile("^px_"))
    assert operator.clicks == 3
    check_access(page)
    token = shown.inner_text()
    hashes = "select secret_hash from exchange.client where id = %s"
    assert look(console, hashes, name) == [(hash_token(token),)]
    recorded = look(
        console,
        "select detail::text, outcome from console.audit"
        " where action = 'exchange.renew' and target = %s",
        name,
    )
    assert [outcome for _, outcome in recorded] == ["done"]
    assert token not in json.dumps(recorded)
    page.locator('[data-test="confirm"]').last.click()
    expect(shown).to_have_count(0)
    check_access(page)
    # Operators see clients, but not this button.
    page = open_page("/exchange/clients", role="operator")
    expect(page.get_by_role("row", name=name)).to_be_visible()
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


@LANGUAGES
def test_who_holds_a_message_is_seen_in_three_clicks(
    open_page: OpenPage, console: RunningConsole, bus: Bus, queue: str, language: str, width: int
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    worker = Worker(console.dsn)

    @worker.handler(queue, mode="lease", concurrency=2)
    def handle(message: LeasedMessage) -> None:
        begun.set()
        may_end.wait(60)

    worker.start()
    iid = bus.post(queue, {"n": 1})
    assert begun.wait(60)
    page = open_page(f"/bus/queues/{queue}", role="operator", language=language, width=width)
    operator = Operator(page)
    cell = page.locator('a[href*="state=leased"]').first
    expect(cell).to_have_text("1")
    operator.click(cell)
    operator.click(page.get_by_role("link", name=iid))
    holder = page.get_by_role("row", name="default")
    expect(holder).to_contain_text(f"{socket.gethostname()}, PID {os.getpid()}")
    operator.click(holder.get_by_role("link"))
    row = page.get_by_role("row", name=queue).first
    expect(row).to_contain_text(texts(language).state("running"))
    assert operator.clicks == 3
    check_access(page)
    may_end.set()
    worker.stop()
    left = "select count(*) from mbus.workers where queue = %s"
    assert look(console, left, queue) == [(0,)]


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
        # All waits are in the bucket up to one second, all handlers in that up to ten.
        for kind, bound in (("wait", 1), ("handled", 10)):
            counts = [0] * (len(SECONDS) + 1)
            counts[SECONDS.index(bound)] = 20
            bus.measure(queue, "default", [kind], counts, [20.0 * bound])
        page = open_page(f"/bus/queues/{queue}", role="viewer", language=language, width=width)
        operator = Operator(page)
        for span, posted in (("hour", "80"), ("days", "120")):
            operator.click(page.locator(f'a[href*="span={span}"]'))
            page.wait_for_url(re.compile(f"span={span}"))
            figure = page.locator(".figures").last.locator(".figure").first
            expect(figure.locator(".value")).to_have_text(posted)
            for chart in page.locator(".chart canvas").all():
                chart.wait_for(state="visible")
            titles = [texts(language)(f"bus.{name}") for name in ("rates", "depth", "latency")]
            for name in titles:
                expect(page.get_by_role("img", name=name)).to_be_visible()
            series = page.evaluate(
                "[...document.querySelectorAll('.chart')].map(one => getElement(one.id.slice(1))"
                ".chart.getOption().series.map(line => line.data.map(point => point[1])))"
            )
            assert series[-1] == [[0.75], [0.975], [7.5], [9.75]]
        assert operator.clicks == 2
        check_access(page)
        bus.drop_queue(queue)


@LANGUAGES
def test_a_file_leads_to_its_notice_and_to_its_consumers_in_two_clicks(
    open_page: OpenPage, console: RunningConsole, stage: Stage, language: str, width: int
) -> None:
    t = texts(language)
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
        page = open_page("/intake/files", role="viewer", language=language, width=width)
        operator = Operator(page)
        operator.click(page.get_by_role("link", name="prices.csv"))
        expect(page.locator("#main")).to_contain_text("shop/prices.csv")
        handled = page.get_by_role("row", name="bookkeeping")
        done = f"{t.state('consumed')}|{t.state('retained')}"
        expect(handled).to_contain_text(re.compile(done))
        expect(page.get_by_role("row", name="default")).to_contain_text(t.state("ready"))
        operator.click(page.get_by_role("link", name=iid))
        expect(page.locator("h1")).to_contain_text(iid)
        assert operator.clicks == 2
        check_access(page)
        bus.drop_consumer("file_events", "bookkeeping")
