"""The bus in a real browser: look, post, take, redrive, move, purge, sagas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
from playwright.sync_api import expect

from postroad.bus import Bus, Saga, Sagas
from postroad.console.catalogue import texts
from postroad.testing import wait_until
from tests.console.clicks import check_access
from tests.console.stage import LANGUAGES, dead_messages, look, press
from tests.fixtures.console import OpenPage, RunningConsole


@pytest.fixture
def bus(console: RunningConsole) -> Iterator[Bus]:
    with Bus(console.dsn) as bus:
        yield bus


@pytest.fixture
def queue(bus: Bus, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "q_" + re.sub(r"\W+", "_", request.node.name.lower())[-22:].strip("_")
    bus.create_queue(name, payload="jsonb")
    yield name
    bus.drop_queue(name)


@LANGUAGES
def test_a_message_is_posted_seen_and_consumed(
    open_page: OpenPage, bus: Bus, queue: str, language: str, width: int
) -> None:
    page = open_page(f"/bus/queues/{queue}", role="operator", language=language, width=width)
    press(page, "post")
    page.locator('[data-test="post-data"]').fill('{"number": 4711}')
    page.locator('[data-test="post-properties"]').fill('{"CITY": "Tver"}')
    press(page, "post-send")
    expect(page.locator(".figures")).to_contain_text("1")
    page.goto(page.url + "/messages")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("CITY=Tver")
    page.locator("tbody a").first.click()
    expect(page.locator("pre.data")).to_contain_text("4711")
    (message,) = bus.consume(queue)
    assert message.data == {"number": 4711}
    # The page learns by itself that the message is gone.
    expect(page.locator(".empty")).to_be_visible()


@LANGUAGES
def test_limits_of_a_consumer_are_set_and_one_is_changed_then_removed(
    open_page: OpenPage, console: RunningConsole, queue: str, language: str, width: int
) -> None:
    def limits() -> list[tuple[object, ...]]:
        names = "rate, burst, concurrency, key, key_rate, key_concurrency"
        return look(console, f"select {names} from mbus.consumers where queue = %s", queue)

    page = open_page(f"/bus/queues/{queue}", role="operator", language=language, width=width)
    wanted = {"rate": "50", "burst": "100", "concurrency": "4", "key": "partner", "key_rate": "2.5",
              "key_concurrency": "1"}  # fmt: skip
    press(page, "limit")
    for name, value in wanted.items():
        expect(page.locator(f'[data-test="{name}"]')).to_have_value("")
        page.locator(f'[data-test="{name}"]').fill(value)
    check_access(page)
    press(page, "confirm")
    expect(page.locator(".dialog")).to_have_count(0)
    assert limits() == [(50, 100, 4, "partner", 2.5, 1)]
    # The form has the present limits, so that a change of one leaves the others.
    press(page, "limit")
    for name, value in wanted.items():
        expect(page.locator(f'[data-test="{name}"]')).to_have_value(value)
    page.locator('[data-test="rate"]').fill("80")
    press(page, "confirm")
    expect(page.locator(".dialog")).to_have_count(0)
    assert limits() == [(80, 100, 4, "partner", 2.5, 1)]
    press(page, "limit")
    for name in ("rate", "burst", "key_rate"):
        page.locator(f'[data-test="{name}"]').fill("")
    press(page, "confirm")
    expect(page.locator(".dialog")).to_have_count(0)
    assert limits() == [(None, 1, 4, "partner", None, 1)]
    press(page, "limit")
    expect(page.locator('[data-test="burst"]')).to_have_value("")
    page.locator('[data-test="concurrency"]').fill("5")
    press(page, "confirm")
    expect(page.locator(".dialog")).to_have_count(0)
    assert limits() == [(None, 1, 5, "partner", None, 1)]


@pytest.mark.timeout(240)
@LANGUAGES
def test_retention_track_and_schema_of_a_queue_are_set_changed_and_ended(
    open_page: OpenPage, bus: Bus, console: RunningConsole, queue: str, language: str, width: int
) -> None:
    def settings() -> tuple[object, ...]:
        names = "retain, retain_size, track, schema"
        return look(console, f"select {names} from mbus.queue where name = %s", queue)[0]

    def change(verb: str, **fields: str) -> None:
        press(page, verb)
        for name, value in fields.items():
            page.locator(f'.dialog [data-test="{name}"]').fill(value)
        check_access(page)
        press(page, "confirm")
        expect(page.locator(".dialog")).to_have_count(0)

    t = texts(language)
    page = open_page(f"/bus/queues/{queue}", role="operator", language=language, width=width)
    change("retain", period="7d", size="1000000")
    change("track", field="order_id")
    change("schema", schema='{"required": ["order_id"]}')
    assert settings() == (timedelta(days=7), 1_000_000, "order_id", {"required": ["order_id"]})
    # The page shows them, and so do the fields.
    shown = page.locator("section", has_text=t("bus.shape")).last
    expect(shown).to_contain_text("order_id")
    expect(shown).to_contain_text('"required"')
    press(page, "retain")
    expect(page.locator('.dialog [data-test="period"]')).to_have_value("7d")
    expect(page.locator('.dialog [data-test="size"]')).to_have_value("1000000")
    page.locator('.dialog [data-test="period"]').fill("seven days")
    press(page, "confirm")
    expect(page.locator(".q-notification").first).to_contain_text("such as 500ms")
    page.locator('.dialog [data-test="period"]').fill("")
    press(page, "confirm")
    expect(page.locator(".dialog")).to_have_count(0)
    assert settings()[:2] == (None, 1_000_000)
    press(page, "schema")
    expect(page.locator('.dialog [data-test="schema"]')).to_have_value(re.compile('"required"'))
    page.locator('.dialog [data-test="schema"]').fill('{"requires": 1}')
    press(page, "confirm")
    expect(page.locator(".q-notification").first).to_contain_text("requires")
    page.locator('.dialog [data-test="schema"]').fill("")
    press(page, "confirm")
    expect(page.locator(".dialog")).to_have_count(0)
    change("track", field="")
    change("retain", size="")
    assert settings() == (None, None, None, None)
    expect(shown).not_to_contain_text("order_id")


@LANGUAGES
def test_a_schedule_is_run_now_paused_and_resumed(
    open_page: OpenPage, bus: Bus, queue: str, language: str, width: int
) -> None:
    bus.schedule("month/end", "0 3 1 * *", queue, {"n": 1}, "Europe/Moscow")
    page = open_page("/bus/schedules", role="operator", language=language, width=width)
    line = page.locator("tr", has_text="month/end")
    expect(line).to_contain_text("0 3 1 * *")
    line.locator('[data-test="run-now-row"]').click()
    wait_until(lambda: bus.peek(queue), what="it was posted")
    line.locator('[data-test="pause-row"]').click()
    line.locator('[data-test="resume-row"]').click()
    expect(line.locator('[data-test="pause-row"]')).to_be_visible()
    line.locator("a").first.click()
    expect(page.locator("table").last).to_contain_text(f"{queue}.")
    press(page, "pause")
    page.locator('[data-test="reason"]').fill("closing")
    press(page, "confirm")
    expect(page.locator("#main")).to_contain_text("closing")
    assert len(bus.consume(queue)) == 1


def test_data_that_is_no_json_is_refused_with_a_reason(
    open_page: OpenPage, bus: Bus, queue: str
) -> None:
    page = open_page(f"/bus/queues/{queue}", role="operator")
    press(page, "post")
    page.locator('[data-test="post-data"]').fill("{")
    press(page, "post-send")
    expect(page.locator(".q-notification")).to_contain_text("not valid JSON")
    assert not bus.peek(queue)


def test_markup_in_a_message_stays_text(open_page: OpenPage, bus: Bus, queue: str) -> None:
    iid = bus.post(queue, {"x": "<img src=x onerror=document.title='owned'>"})
    page = open_page(f"/bus/messages/{iid}")
    expect(page.locator("pre.data")).to_contain_text("<img src=x")
    assert page.locator("pre.data img").count() == 0
    assert "owned" not in page.title()


@LANGUAGES
def test_dead_messages_of_a_group_are_moved_to_a_queue(
    open_page: OpenPage, bus: Bus, queue: str, language: str, width: int
) -> None:
    bus.create_queue("dead_destination", payload="jsonb")
    dead_messages(bus, queue, ["no customer 1", "no customer 2", "out of paper"])
    page = open_page("/bus/dead", role="operator", language=language, width=width)
    row = page.locator("tr", has_text=queue).filter(has_text="no customer ?")
    row.get_by_text("no customer ?").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    press(page, "move-all")
    page.locator('[data-test="destination"]').fill("dead_dest")
    page.locator(".q-menu").get_by_text("dead_destination", exact=True).click()
    press(page, "confirm")
    expect(page.locator("tbody tr")).to_have_count(0)
    assert len(bus.consume("dead_destination", amount=10)) == 2
    assert [one.error for one in bus.dead(queue)] == ["out of paper"]
    bus.drop_queue("dead_destination")


def test_dead_messages_are_redriven_with_a_delay(open_page: OpenPage, bus: Bus, queue: str) -> None:
    dead_messages(bus, queue, ["no customer 1"])
    page = open_page(f"/bus/dead/messages?queue={queue}", role="operator")
    press(page, "redrive-all")
    page.locator('[data-test="delay"]').fill("10")
    press(page, "confirm")
    expect(page.locator("tbody tr")).to_have_count(0)
    (status,) = bus.status(queue)
    assert (status.delayed, status.dmq) == (1, 0)


def test_messages_are_taken_moved_and_purged_after_a_confirmation(
    open_page: OpenPage, bus: Bus, queue: str
) -> None:
    bus.create_queue("a_destination", payload="jsonb")
    taken = bus.post(queue, {"n": 1})
    moved = bus.post(queue, {"n": 2})
    bus.post(queue, {"n": 3})
    page = open_page(f"/bus/messages/{taken}", role="operator")
    press(page, "take")
    press(page, "confirm")
    expect(page.locator(".empty")).to_be_visible()
    page.goto(page.url.replace(taken, moved))
    press(page, "move")
    page.locator('[data-test="destination"]').fill("a_dest")
    page.locator(".q-menu").get_by_text("a_destination", exact=True).click()
    press(page, "confirm")
    expect(page.locator(".empty")).to_be_visible()
    page.goto(page.url.rpartition("/bus/")[0] + f"/bus/queues/{queue}/messages")
    press(page, "purge-all")
    expect(page.locator(".dialog")).to_contain_text(queue)
    assert bus.peek(queue)
    press(page, "confirm")
    expect(page.locator(".empty")).to_be_visible()
    assert not bus.peek(queue)


def test_long_lists_go_on_from_page_to_page(open_page: OpenPage, bus: Bus, queue: str) -> None:
    bus.post_many(queue, [{"n": n} for n in range(120)])
    page = open_page(f"/bus/queues/{queue}/messages?sort=id&order=down")
    for rows in (50, 50, 20):
        expect(page.locator("tbody tr")).to_have_count(rows)
        if rows == 50:
            page.locator(".pager a[rel=next]").click()
    assert page.locator(".pager a[rel=next]").count() == 0
    page.locator("input[type=search][name=search]").fill('"n": 77')
    page.locator(".filter button").click()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_viewers_are_not_offered_anything_that_changes(
    open_page: OpenPage, bus: Bus, queue: str
) -> None:
    bus.post(queue, {"n": 1})
    page = open_page(f"/bus/queues/{queue}/messages", role="viewer")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.locator("[data-test]").count() == 0
    assert page.locator('nav a[href="/console/audit"]').count() == 0


def test_a_role_that_was_taken_away_is_refused_and_written_down(
    open_page: OpenPage, bus: Bus, queue: str, console: RunningConsole
) -> None:
    bus.post(queue, {"n": 1})
    page = open_page(f"/bus/queues/{queue}/messages", role="operator")
    press(page, "purge-all")
    with psycopg.connect(console.dsn) as connection:
        connection.execute("update console.account set role = 'viewer' where name = 'operator'")
    try:
        press(page, "confirm")
        expect(page.locator(".q-notification").first).to_contain_text("does not allow")
        assert bus.peek(queue)
        with psycopg.connect(console.dsn) as connection:
            (outcome,) = connection.execute(
                "select outcome from console.audit where action = 'bus.purge' and target = %s",
                (queue,),
            ).fetchone() or ("",)
        assert outcome == "refused"
    finally:
        with psycopg.connect(console.dsn) as connection:
            connection.execute(
                "update console.account set role = 'operator' where name = 'operator'"
            )
        # The role is cached for two seconds; the next test signs in as the same account.
        role = page.locator(".account .role")
        wait_until(lambda: page.reload() and role.inner_text() == "operator", what="the role")


@pytest.fixture
def saga(bus: Bus) -> Callable[[], int]:
    for name in ("rooms", "flights", "no_rooms"):
        bus.create_queue(f"saga_{name}", payload="jsonb")
    plan = (
        Saga("tour", data={"tour": 1})
        .step("room", do="saga_rooms", undo="saga_no_rooms")
        .step("flight", do="saga_flights", after=["room"])
    )
    return lambda: plan.start(bus)


@LANGUAGES
def test_a_saga_is_shown_as_a_graph_cancelled_and_tried_again(
    open_page: OpenPage,
    bus: Bus,
    saga: Callable[[], int],
    console: RunningConsole,
    language: str,
    width: int,
) -> None:
    t = texts(language)
    saga_id = saga()
    bus.consume("saga_rooms")
    page = open_page("/bus/sagas", role="operator", language=language, width=width)
    page.get_by_role("link", name=str(saga_id), exact=True).click()
    expect(page.locator(".graph svg .node").first).to_be_visible()
    expect(page.locator("tbody")).to_contain_text(t.state("done"))
    press(page, "cancel")
    press(page, "confirm")
    expect(page.locator(".badge", has_text=t.state("compensating")).first).to_be_visible()
    assert {step.state for step in Sagas(bus).status(saga_id)} == {"compensating"}
    # What undoes the room dies: the saga is stuck until somebody tries that again.
    (held,) = bus.lease("saga_no_rooms")
    bus.nack(held, error="the hotel does not answer", park=True)
    expect(page.locator(".badge", has_text=t.state("stuck")).first).to_be_visible()
    press(page, "retry")
    press(page, "confirm")
    wait_until(lambda: bus.consume("saga_no_rooms"), what="the room is undone")
    expect(page.locator(".badge", has_text=t.state("compensated")).first).to_be_visible()
    with psycopg.connect(console.dsn) as connection:
        row = connection.execute(
            "select account, outcome from console.audit"
            " where action = 'saga.cancel' and target = %s",
            (str(saga_id),),
        ).fetchone()
    assert row == ("operator", "done")


def test_messages_that_wait_are_a_graph(open_page: OpenPage, bus: Bus, queue: str) -> None:
    first = bus.post(queue, {"n": 1})
    second = bus.post(queue, {"n": 2}, headers={"consume_after": f"{{{first}}}"})
    page = open_page("/bus/waiting")
    expect(page.locator(".graph svg .node").first).to_be_visible()
    expect(page.get_by_role("row", name=second)).to_contain_text(first)


@pytest.mark.parametrize("verb", ["redrive", "move", "purge"])
def test_bulk_actions_change_only_what_the_filter_shows(
    open_page: OpenPage, bus: Bus, queue: str, verb: str
) -> None:
    bus.create_queue("a_destination", payload="jsonb")
    dead_messages(bus, queue, ["TimeoutError", "ValueError", "TimeoutError", "ValueError"])
    page = open_page(
        f"/bus/queues/{queue}/messages?state=dead&search=TimeoutError", role="operator"
    )
    expect(page.locator("tbody tr")).to_have_count(2)
    press(page, f"{verb}-all")
    expect(page.locator(".dialog")).to_contain_text("TimeoutError")
    expect(page.locator(".dialog")).to_contain_text("2")
    if verb == "move":
        page.locator('[data-test="destination"]').fill("a_dest")
        page.locator(".q-menu").get_by_text("a_destination", exact=True).click()
    press(page, "confirm")
    expect(page.locator(".dialog")).to_have_count(0)
    expect(page.locator("tbody tr")).to_have_count(0)
    assert [one.error for one in bus.dead(queue)] == ["ValueError", "ValueError"]
    if verb == "redrive":
        assert sorted(message.data["n"] for message in bus.consume(queue, amount=10)) == [0, 2]
    bus.drop_queue("a_destination")
