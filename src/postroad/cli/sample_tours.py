"""A sample partner of `postroad up`: an agency that books tours as sagas, some of which fail.

A tour is a room, two flights after the room, and a transfer after each flight. One tour in six has
no seat on the flight home and is rolled back; one in thirty has a transfer that cannot be
cancelled, and is stuck until an operator retries it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime, timedelta

import psycopg

from postroad.bus import AsyncBus, AsyncWorker, Message, Park, Saga
from postroad.bus.reconnect import SURVIVABLE
from postroad.cli.parts import PartContext
from postroad.service import Service

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
DEADLINE_DEFAULT = timedelta(minutes=10)
NO_SEAT_ONE_IN = 6
STUCK_ONE_IN = 30
# Each step takes a moment, so that the graph can be watched.
WORK_SECONDS = 0.6

STEPS: dict[str, tuple[str, str, list[str]]] = {
    "room": ("tour_rooms", "tour_cancel_rooms", []),
    "ticket_to": ("tour_tickets", "tour_cancel_tickets", ["room"]),
    "ticket_from": ("tour_tickets", "tour_cancel_tickets", ["room"]),
    "transfer_to": ("tour_transfers", "tour_cancel_transfers", ["ticket_to"]),
    "transfer_from": ("tour_transfers", "tour_cancel_transfers", ["ticket_from"]),
}


class SampleTours(Service):
    """Starts a tour every few seconds and does its steps."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("sample tours")
        self._dsn = context.dsn

    async def run(self) -> None:
        """Book until stopped."""
        async with AsyncBus(self._dsn) as bus:
            for do, undo, _ in STEPS.values():
                await bus.create_queue(do, payload="jsonb")
                await bus.create_queue(undo, payload="jsonb")
            await bus.create_queue("tour_is_over", payload="jsonb")
            worker = AsyncWorker(self._dsn)
            _serve(worker)
            async with worker:
                self.announce_ready()
                while not await self.pause(PAUSE_SECONDS):
                    try:
                        await _tour().start(bus)
                    except SURVIVABLE as failure:
                        logger.warning("tour_not_started", extra={"reason": str(failure).strip()})


def _tour() -> Saga:
    number = random.randrange(10_000)  # noqa: S311 - a sample
    data = {
        "tour": number,
        "has_seat": number % NO_SEAT_ONE_IN > 0,
        "can_cancel": number % STUCK_ONE_IN > 0,
    }
    saga = Saga(
        "tour",
        data=data,
        deadline=datetime.now(UTC) + DEADLINE_DEFAULT,
        on_completed="tour_is_over",
        on_compensated="tour_is_over",
    )
    for name, (do, undo, after) in STEPS.items():
        saga.step(name, do=do, undo=undo, after=after)
    return saga


def _serve(worker: AsyncWorker) -> None:
    async def book(message: Message, connection: psycopg.AsyncConnection) -> None:
        del connection
        await asyncio.sleep(WORK_SECONDS * random.random() * 2)  # noqa: S311 - the work itself
        if message.headers["step"] == "ticket_from" and not message.data["has_seat"]:
            raise Park("no seat on the flight home")

    async def cancel(message: Message, connection: psycopg.AsyncConnection) -> None:
        del connection
        await asyncio.sleep(WORK_SECONDS * random.random())  # noqa: S311
        if message.headers["step"] == "room" and not message.data["can_cancel"]:
            raise Park("the hotel does not answer")

    async def finish(message: Message, connection: psycopg.AsyncConnection) -> None:
        del message, connection

    for do in sorted({do for do, _, _ in STEPS.values()}):
        worker.handler(do)(book)
    for undo in sorted({undo for _, undo, _ in STEPS.values()}):
        worker.handler(undo)(cancel)
    worker.handler("tour_is_over")(finish)
