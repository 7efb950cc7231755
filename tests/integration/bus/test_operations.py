"""What operators see and do: pages, search, move, purge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from postroad.bus import AsyncBus, InvalidArgument, Message, WrongPayload, operations
from postroad.bus import browse as looking
from postroad.bus.resources import (
    DEAD_GROUPS,
    FIGURES,
    MESSAGES,
    MOVE_MESSAGES,
    PURGE_MESSAGES,
    REDRIVE_MESSAGES,
    WAITS,
)
from postroad.operate import Action, resource
from postroad.postgres import connect_async

READY = {"queue": "orders", "consumer": "default", "state": "ready"}
BUS_STATES = ("ready", "delayed", "waiting", "leased", "dead")


@pytest.fixture
async def bus(database: str) -> AsyncIterator[AsyncBus]:
    async with AsyncBus(database, listen=False) as bus:
        await bus.create_queue("orders", payload="jsonb")
        yield bus


async def move(database: str, iids: list[str], state: looking.State, destination: str) -> int:
    async with await connect_async(database) as connection:
        names = ("orders", "default", state, destination)
        return await operations.move_messages(connection, iids, *names)


async def change(database: str, action: Action, filters: dict[str, str], **given: str) -> list[int]:
    """Run an action on all messages that match; return the counts after each batch."""
    async with await connect_async(database, autocommit=True) as connection:
        changed = action.run_on_matching(connection, {}, filters, **given)
        return [so_far["count"] async for so_far in changed]


async def numbers(bus: AsyncBus, **options: object) -> list[int]:
    page = await looking.browse(bus, "orders", **options)  # type: ignore[arg-type]
    return [int((message.data or "").strip("{}").split(": ")[1]) for message in page.messages]


@pytest.mark.parametrize("has_second", [False, True])
async def test_pages_follow_each_other_in_both_directions(bus: AsyncBus, has_second: bool) -> None:
    if has_second:
        await bus.create_consumer("orders", "second")
    await bus.post_many("orders", [{"n": n} for n in range(25)])
    seen: list[str] = []
    place = None
    while True:
        page = await looking.browse(bus, "orders", place=place, amount=10)
        seen += [message.iid for message in page.messages]
        place = page.next_place
        if place is None:
            break
    assert len(set(seen)) == len(seen) == 25
    back = await looking.browse(bus, "orders", is_descending=True, amount=25)
    assert [message.iid for message in back.messages] == seen[::-1]
    assert back.next_place is None


async def test_a_search_goes_on_where_it_stopped(bus: AsyncBus) -> None:
    await bus.post_many("orders", [{"n": n} for n in range(12_000)])
    await bus.post("orders", {"n": -4711}, properties={"CITY": "Tver"})
    first = await looking.browse(bus, "orders", search="tver")
    assert not first.messages
    assert first.next_place is not None
    second = await looking.browse(bus, "orders", search="tver", place=first.next_place)
    assert [message.data for message in second.messages] == ['{"n": -4711}']
    assert second.next_place is None


@pytest.mark.both_versions
async def test_every_state_is_shown_where_it_is(bus: AsyncBus, database: str) -> None:
    await bus.post("orders", {"n": 0})
    (leased,) = await bus.lease("orders")
    await bus.post("orders", {"n": 1})
    (dying,) = await bus.lease("orders")
    await bus.nack(dying, error="no such customer", park=True)
    await bus.post("orders", {"n": 2}, delayed_until=datetime.now(UTC) + timedelta(hours=1))
    await bus.post("orders", {"n": 3}, headers={"consume_after": f"{{{leased.iid}}}"})
    await bus.post("orders", {"n": 4})
    found = {state: await numbers(bus, state=state) for state in BUS_STATES}
    assert found == {"leased": [0], "dead": [1], "delayed": [2], "waiting": [3], "ready": [4]}
    async with await psycopg.AsyncConnection.connect(database) as connection:
        (reason,) = await DEAD_GROUPS.all(connection)
        (wait,) = await WAITS.all(connection)
        (figures,) = await FIGURES.all(connection, {"queue": "orders"})
    assert (reason["error"], reason["messages"]) == ("no such customer", 1)
    assert (wait["before_iid"], wait["before_state"]) == (leased.iid, "pending")
    assert [figures[name] for name in ("ready", "delayed", "blocked", "leased", "dmq")] == [1] * 5
    for message in (leased, dying):
        assert [state for _, state, _ in await looking.find(bus, message.iid)] == [
            "leased" if message is leased else "dead"
        ]
    with pytest.raises(InvalidArgument):
        await looking.browse(bus, "orders", state="lost")  # type: ignore[arg-type]


async def test_a_message_that_was_put_back_is_found_by_its_iid(bus: AsyncBus) -> None:
    iid = await bus.post("orders", {"n": 0})
    # More than a search reads at once.
    await bus.post_many("orders", [{"n": n} for n in range(1, 10_005)])
    (held,) = await bus.lease("orders")
    await bus.nack(held, delay=timedelta(0))
    page = await looking.browse(bus, "orders", search=iid)
    assert [message.iid for message in page.messages] == [iid]
    assert [message.iid for _, _, message in await looking.find(bus, iid)] == [iid]
    assert await looking.find(bus, "nothing") == []


@pytest.mark.parametrize("state", ["ready", "dead"])
async def test_moved_messages_keep_what_they_carry(
    bus: AsyncBus, database: str, state: looking.State
) -> None:
    await bus.create_queue("archive", payload="jsonb")
    iid = await bus.post("orders", {"n": 1}, properties={"CITY": "Tver"})
    if state == "dead":
        (held,) = await bus.lease("orders")
        await bus.nack(held, error="broken", park=True)
    assert await move(database, [iid], state, "archive") == 1
    assert await move(database, [iid], state, "archive") == 0
    (message,) = await bus.consume("archive")
    assert isinstance(message, Message)
    assert message.data == {"n": 1}
    assert message.properties == {"CITY": "Tver"}
    assert message.headers["moved_from"] == iid


@pytest.mark.both_versions
async def test_moving_to_another_payload_is_refused(bus: AsyncBus, database: str) -> None:
    await bus.create_queue("texts", payload="text")
    iid = await bus.post("orders", {"n": 1})
    with pytest.raises(WrongPayload):
        await move(database, [iid], "ready", "texts")
    for unknown in ("orders", "nowhere"):
        with pytest.raises(InvalidArgument):
            await move(database, [iid], "ready", unknown)
    assert await numbers(bus) == [1]


@pytest.mark.parametrize("has_waiters", [False, True])
async def test_purging_leaves_the_other_consumer_and_the_other_states_alone(
    bus: AsyncBus, database: str, has_waiters: bool
) -> None:
    await bus.create_consumer("orders", "second")
    if has_waiters:
        first = await bus.post("orders", {"n": 0})
        await bus.post("orders", {"n": 1}, headers={"consume_after": f"{{{first}}}"})
    await bus.post_many("orders", [{"n": n} for n in range(1_200)])
    await bus.post("orders", {"n": 1}, delayed_until=datetime.now(UTC) + timedelta(hours=1))
    totals = await change(database, PURGE_MESSAGES, {**READY, "search": ""})
    assert totals[-1] >= 1_200
    assert await numbers(bus) == []
    assert len(await numbers(bus, state="delayed")) == 1
    second = await looking.browse(bus, "orders", "second", amount=100_000)
    assert len(second.messages) >= 1_200


@pytest.mark.parametrize("action", [REDRIVE_MESSAGES, MOVE_MESSAGES, PURGE_MESSAGES])
async def test_only_the_selected_messages_are_changed_over_many_batches(
    bus: AsyncBus, database: str, action: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "MAX_KEYS", 50)
    await bus.create_queue("archive", payload="jsonb")
    await bus.post_many("orders", [{"n": n} for n in range(240)])
    held = await bus.lease("orders", amount=240)
    for number, one in enumerate(held):
        await bus.nack(one, error=f"error {'odd' if number % 2 else 'even'}", park=True)
    odd, even = ({**READY, "state": "dead", "search": word} for word in ("odd", "even"))
    given = {"destination": "archive"} if action is MOVE_MESSAGES else {}
    totals = await change(database, action, odd, **given)
    assert totals[-1] == 120
    assert len(totals) > 2
    async with await connect_async(database) as connection:
        assert await MESSAGES.count(connection, odd) == 0
        assert await MESSAGES.count(connection, even) == 120


async def test_a_search_continues_after_a_match_that_was_the_last_message_read(
    bus: AsyncBus,
) -> None:
    await bus.post_many("orders", [{"n": n} for n in range(9_999)])
    await bus.post("orders", {"n": 1}, properties={"CITY": "Tver"})
    await bus.post("orders", {"n": 2}, properties={"CITY": "Tver"})
    first = await looking.browse(bus, "orders", search="tver")
    assert [message.data for message in first.messages] == ['{"n": 1}']
    second = await looking.browse(bus, "orders", search="tver", place=first.next_place)
    assert [message.data for message in second.messages] == ['{"n": 2}']
    assert second.next_place is None


async def test_a_search_that_has_read_every_message_has_no_next_page(bus: AsyncBus) -> None:
    await bus.post_many("orders", [{"n": n} for n in range(20)])
    page = await looking.browse(bus, "orders", search='"n": 7')
    assert len(page.messages) == 1
    assert page.next_place is None


async def test_expired_messages_do_not_end_the_pages_early(bus: AsyncBus) -> None:
    for number in range(30):
        expires = datetime.now(UTC) + timedelta(milliseconds=1) if number < 15 else None
        await bus.post("orders", {"n": number}, expires=expires)
    found, place = [], None
    while True:
        page = await looking.browse(bus, "orders", place=place, amount=10)
        found += [message.data for message in page.messages]
        place = page.next_place
        if place is None:
            break
    assert found == [f'{{"n": {number}}}' for number in range(15, 30)]


async def test_a_retained_message_is_not_shown_for_a_consumer_that_it_was_not_for(
    bus: AsyncBus,
) -> None:
    await bus.alter_queue("orders", retain=timedelta(days=1))
    await bus.create_consumer("orders", "audit", "(t.properties->'a')='b'")
    iid = await bus.post("orders", {"n": 1})

    async def places() -> list[tuple[str, str]]:
        return [(consumer, state) for consumer, state, _ in await looking.find(bus, iid)]

    assert await places() == [("default", "ready")]
    [held] = await bus.lease("orders")
    await bus.nack(held, park=True)
    assert await places() == [("default", "dead")]
    await bus.redrive("orders")
    await bus.consume("orders")
    assert await places() == [("default", "retained")]
