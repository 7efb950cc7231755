"""Pausing from Python: both colours, and workers in both modes."""

from __future__ import annotations

import pytest

from postroad.bus import ConsumerNotFound
from postroad.testing import wait_until_async
from tests.integration.bus.crew import Crew


async def test_a_pause_is_made_listed_and_ended(bus):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "x")
    assert await bus.pause("orders", reason="the ERP is down", paused_by="olga")
    assert not await bus.pause("orders")
    assert await bus.consume("orders") == []
    [consumer] = await bus.consumers("orders")
    assert (consumer.paused_by, consumer.pause_reason) == ("olga", "the ERP is down")
    assert consumer.is_queue_paused
    assert await bus.resume("orders")
    assert not await bus.resume("orders")
    assert [message.data for message in await bus.consume("orders")] == ["x"]
    with pytest.raises(ConsumerNotFound):
        await bus.pause("orders", "nobody")


@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_a_worker_stops_taking_and_goes_on_when_resumed(bus, colour, database, mode):
    seen = []
    await bus.create_queue("orders", payload="text")
    await bus.create_queue("others", payload="text")
    crew = Crew(colour, database)
    for queue in ("orders", "others"):
        crew.on(queue, lambda message: seen.append(message.data), mode=mode)

    async def is_seen(*data):
        async def look():
            return seen == list(data)

        await wait_until_async(look, what=f"{data} were handled")

    async with crew:
        await bus.post("orders", "first")
        await is_seen("first")
        await bus.pause("orders")
        await bus.post("orders", "second")
        # The same worker has had the time to take it.
        await bus.post("others", "third")
        await is_seen("first", "third")
        await bus.resume("orders")
        await is_seen("first", "third", "second")
