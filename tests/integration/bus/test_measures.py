"""Workers measure waits, handlers, attempts and batches, and send them to the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from postroad.bus import InvalidArgument, Retry
from postroad.bus.measures import BOUNDS
from postroad.bus.resources import HANDLING
from postroad.postgres import connect_async
from postroad.testing import wait_until_async
from tests.integration.bus.crew import Crew


async def shown(database):
    async with await connect_async(database) as connection:
        [row] = await HANDLING.all(connection, {"queue": "orders"})
        return SimpleNamespace(**row)


@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_a_worker_measures_what_it_handles(bus, colour, database, mode):
    seen = []
    await bus.create_queue("orders", payload="text")
    await bus.alter_consumer("orders", "default", backoff=timedelta(0))
    crew = Crew(colour, database)

    def script(message):
        seen.append(message.data)
        if message.data == "bad" and seen.count("bad") < 3:
            raise ValueError("not yet")
        if message.data == "later" and seen.count("later") < 2:
            raise Retry(after=timedelta(0))

    crew.on("orders", script, mode=mode)
    posted = datetime.now(UTC) - timedelta(hours=1)
    await bus.post_many("orders", ["good"] * 20)
    await bus.post("orders", "bad")
    await bus.post("orders", "later")
    await bus.post("orders", "due", delayed_until=posted)

    async def is_empty():
        [status] = await bus.status("orders")
        return status.depth == 0

    async with crew:
        await wait_until_async(is_empty, what="all messages were handled")
    # The rest is sent when the worker ends.
    handling = await shown(database)
    assert (handling.handled, handling.failed) == (23, 2)
    # 21 messages at the first attempt, one at the second and one at the third.
    assert handling.attempts == pytest.approx((21 + 2 + 3) / 23)
    assert handling.batch >= 1
    assert timedelta(0) <= handling.wait_median <= handling.wait_high
    assert timedelta(0) < handling.handling_median <= handling.handling_high
    measured = {each.kind: each for each in await bus.measures("orders")}
    # The wait of a delayed message begins when it is due.
    assert measured["wait"].total > timedelta(hours=1).total_seconds()
    assert {kind: sum(each.counts) for kind, each in measured.items() if kind != "batch"} == {
        "attempts": 23, "failed": 2, "handled": 23, "wait": 23,
    }  # fmt: skip


async def test_batch_handlers_are_measured_per_message(bus, colour, database):
    await bus.create_queue("orders", payload="text")
    await bus.alter_consumer("orders", "default", max_attempts=1)
    crew = Crew(colour, database)

    def script(messages):
        for message in messages:
            if message.data == "bad":
                messages.fail(message, ValueError("bad"))

    crew.on("orders", script, batch=10)
    await bus.post_many("orders", ["good"] * 9 + ["bad"])

    async def is_empty():
        [status] = await bus.status("orders")
        return status.depth == 0

    async with crew:
        await wait_until_async(is_empty, what="all messages were handled")
    handling = await shown(database)
    assert (handling.handled, handling.failed, handling.batch) == (9, 1, 10)


async def test_measures_are_added_and_exported(bus):
    from postroad.console.metrics import _Found, histograms

    await bus.create_queue("orders")
    counts = [0] * (len(BOUNDS["wait"]) + 1)
    counts[BOUNDS["wait"].index(30)] = 3
    counts[-1] = 1
    for _ in range(2):
        await bus.measure("orders", "default", ["wait"], counts, [100_000.5])
    [measured] = await bus.measures()
    assert measured.counts == [2 * count for count in counts]
    assert tuple(measured.bounds) == BOUNDS["wait"]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Found(histograms([measured])))
    text = generate_latest(registry).decode()
    of = 'postroad_wait_seconds_bucket{consumer="default",le="%s",queue="orders"} %s'
    for bound, expected in (("10.0", "0.0"), ("30.0", "6.0"), ("86400.0", "6.0"), ("+Inf", "8.0")):
        assert of % (bound, expected) in text
    assert 'postroad_wait_seconds_sum{consumer="default",queue="orders"} 200001.0' in text


@pytest.mark.parametrize(
    ("kinds", "counts", "totals"),
    [
        (["wait"], [1, 2], [1.0]),
        (["other"], [0] * 23, [1.0]),
        (["wait"], [-1] * 23, [1.0]),
        (["wait"], [1] * 23, [float("nan")]),
        (["wait", "wait"], [1] * 46, [1.0, 1.0]),
    ],
)
async def test_invalid_measures_are_refused(bus, kinds, counts, totals):
    await bus.create_queue("orders")
    with pytest.raises(InvalidArgument):
        await bus.measure("orders", "default", kinds, counts, totals)
    assert await bus.measures() == []
