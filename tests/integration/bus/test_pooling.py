"""Everything but NOTIFY works behind PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from postroad.bus import AsyncBus, Bus, InvalidArgument
from postroad.testing import wait_until_async
from tests.integration.bus.conftest import Awaited
from tests.integration.bus.crew import QUICK, Crew
from tests.integration.bus.test_subscribing import Subscribed

POOLED = replace(QUICK, listen=False)


@pytest.fixture
async def bus(colour, pooled):
    if colour == "sync":
        with Bus(pooled, listen=False) as blocking:
            yield Awaited(blocking)
    else:
        async with AsyncBus(pooled, listen=False) as awaiting:
            yield awaiting


async def test_messages_pass_the_pooler(bus):
    await bus.create_queue("orders", payload="text")
    await bus.create_consumer("orders", "second")
    # Often enough for a driver that prepares statements to have begun with it.
    iids = [await bus.post("orders", str(number)) for number in range(20)]
    iids += await bus.post_many("orders", [str(number) for number in range(20, 2100)])
    assert len(set(iids)) == 2100
    data = [message.data for message in await bus.consume("orders", amount=3000)]
    assert data == [str(number) for number in range(2100)]
    assert (await bus.take(iids[0], consumer="second")).data == "0"
    [leased, other] = await bus.lease("orders", "second", 2)
    await bus.ack(leased)
    assert await bus.nack(other, timedelta(0)) == "ready"
    [status] = [each for each in await bus.status("orders") if each.consumer == "second"]
    assert status.ready == 2098


async def test_many_consumers_share_two_connections(bus, pooled):
    await bus.create_queue("orders", payload="text")
    await bus.post_many("orders", [str(number) for number in range(400)])

    async def drain():
        found = []
        async with await psycopg.AsyncConnection.connect(
            pooled, prepare_threshold=None
        ) as connection:
            inside = AsyncBus(connection)
            while messages := await inside.consume("orders", amount=7):
                found += [message.data for message in messages]
                await connection.commit()
        return found

    # Twenty clients, each message once: a transaction keeps its server connection to its end.
    taken = [data for part in await asyncio.gather(*(drain() for _ in range(20))) for data in part]
    assert sorted(taken, key=int) == [str(number) for number in range(400)]


@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_a_worker_polls_through_the_pooler(colour, bus, pooled, mode):
    await bus.create_queue("orders", payload="text")
    seen = []
    crew = Crew(colour, pooled, POOLED)
    crew.on("orders", lambda message: seen.append(message.data), mode=mode)
    async with crew:
        await bus.post_many("orders", [str(number) for number in range(50)])

        async def is_done():
            [status] = await bus.status("orders")
            return len(seen) == 50 and status.ready + status.leased == 0

        await wait_until_async(is_done, what="all are handled")
    assert sorted(seen, key=int) == [str(number) for number in range(50)]


async def test_maintenance_goes_through_the_pooler(bus, clock):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "a")
    await bus.lease("orders", ttl=timedelta(minutes=1))
    clock.advance(timedelta(minutes=2))
    for _ in range(3):
        await bus.maintain()
    [status] = await bus.status("orders")
    assert (status.ready, status.leased) == (1, 0)


async def test_a_subscription_polls_through_the_pooler(bus):
    await bus.create_queue("orders", payload="text")
    subscribed = Subscribed(bus, "orders")
    coming = asyncio.create_task(subscribed.next())
    await bus.post("orders", "a")
    assert (await coming).data == "a"
    await subscribed.leave(None)
    assert not await bus.peek("orders")


async def test_a_request_says_that_it_needs_a_session(bus):
    await bus.create_queue("prices", payload="text")
    with pytest.raises(InvalidArgument, match="pooler"):
        await bus.request("prices", "?")
