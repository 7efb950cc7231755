"""Sagas in both colours, with real workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from postroad.bus import (
    AsyncBus,
    AsyncSagas,
    Bus,
    Message,
    Park,
    Saga,
    SagaNotFound,
    Sagas,
    Worker,
)
from postroad.testing import wait_until
from tests.integration.bus.conftest import Awaited, Colour


@pytest.fixture
def sagas(bus: Any) -> Any:
    if isinstance(bus, AsyncBus):
        return AsyncSagas(bus)
    return Awaited(Sagas(bus.blocking))


def plan(**options: Any) -> Saga:
    return (
        Saga("trip", data={"trip": 1}, **options)
        .step("room", do="rooms", undo="cancel_rooms")
        .step("flight", do="flights", undo="cancel_flights", after=["room"], data={"seats": 2})
    )


async def create_queues(bus: Any) -> None:
    for queue in ("rooms", "flights", "cancel_rooms", "cancel_flights"):
        await bus.create_queue(queue, ncons=2, payload="jsonb")


async def test_a_saga_is_started_and_completed(bus: Any, sagas: Any) -> None:
    await create_queues(bus)
    saga_id = await sagas.start(plan())
    [room] = await bus.consume("rooms")
    assert room.data == {"trip": 1}
    assert room.headers["idempotency_key"] == room.iid
    [flight] = await bus.consume("flights")
    assert flight.data == {"seats": 2}
    [first, second] = await sagas.status(saga_id)
    assert (first.step, second.step) == ("room", "flight")
    assert {first.state, second.state} == {"completed"}


async def test_a_saga_is_cancelled_once(bus: Any, sagas: Any) -> None:
    await create_queues(bus)
    saga_id = await sagas.start(plan())
    await bus.consume("rooms")
    assert await sagas.cancel(saga_id, "enough")
    assert not await sagas.cancel(saga_id)
    [compensation] = await bus.consume("cancel_rooms")
    assert compensation.headers["step"] == "room"
    steps = await sagas.status(saga_id)
    assert [step.step_state for step in steps] == ["compensated", "skipped"]
    assert await sagas.status(state="running") == []


async def test_a_handler_aborts_in_its_transaction(
    bus: Any, sagas: Any, transaction: Callable[..., Any]
) -> None:
    await create_queues(bus)
    saga_id = await sagas.start(plan())
    async with transaction() as (_, inside):
        [room] = await inside.consume("rooms")
        if isinstance(inside, AsyncBus):
            assert await AsyncSagas(inside).abort(room, "no rooms")
        else:
            assert Sagas(inside.blocking).abort(room, "no rooms")
    [first, _] = await sagas.status(saga_id)
    assert (first.state, first.step_state, first.error) == (
        "compensated",
        "failed",
        "room: no rooms",
    )


async def test_what_is_unknown_is_refused(bus: Any, sagas: Any) -> None:
    with pytest.raises(SagaNotFound):
        await sagas.cancel(99)
    with pytest.raises(SagaNotFound):
        await sagas.retry(99)


async def test_start_speaks_both_colours(bus: Any, colour: Colour) -> None:
    await create_queues(bus)
    if colour == "sync":
        assert plan().start(bus.blocking) > 0
    else:
        assert await plan().start(bus) > 0


def test_both_colours_promise_the_same() -> None:
    for name, member in vars(Sagas).items():
        if name[0] != "_":
            other = vars(AsyncSagas)[name]
            assert inspect.getdoc(member) == inspect.getdoc(other)
            assert inspect.signature(member) == inspect.signature(other)


@pytest.mark.parametrize("mode", ["transaction", "lease"])
def test_workers_carry_a_saga_back_when_a_handler_parks(database: str, mode: Any) -> None:
    undone: list[str] = []
    worker = Worker(database)

    @worker.handler("rooms", mode=mode)
    def book_room(message: Message, *_: Any) -> None:
        assert message.headers["step"] == "room"

    @worker.handler("flights", mode=mode)
    def book_flight(message: Message, *_: Any) -> None:
        raise Park("no seats")

    @worker.handler("cancel_rooms", mode=mode)
    def cancel_room(message: Message, *_: Any) -> None:
        undone.append(message.headers["step"] or "")

    @worker.handler("cancel_flights", mode=mode)
    def cancel_flight(message: Message, *_: Any) -> None:
        undone.append(message.headers["step"] or "")

    with Bus(database) as bus:
        for queue in ("rooms", "flights", "cancel_rooms", "cancel_flights"):
            bus.create_queue(queue, ncons=2, payload="jsonb")
        saga_id = plan().start(bus)
        with worker:
            wait_until(
                lambda: Sagas(bus).status(saga_id)[0].state == "compensated",
                what="the saga is compensated",
                timeout_seconds=30,
            )
        assert Sagas(bus).status(saga_id)[0].error == "flight: no seats"
    assert undone == ["room"]
    with psycopg.connect(database) as connection:
        (depth,) = connection.execute("select sum(depth + dmq) from mbus.status").fetchone() or (
            None,
        )
    assert depth == 0
