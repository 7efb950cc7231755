"""Request and reply round trips, and what temporary queues leave in the catalogue."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least, at_most
from benchmarks.rounds import thousands
from benchmarks.shapes import PAYLOAD
from postroad.bus import AsyncBus

ROUNDS = 3
SECONDS = 5
ASKERS = 800
SINGLE = 500
TEMPORARY_QUEUES = 100_000
TIMEOUT = timedelta(seconds=30)
CATALOGUE = "select (select count(*) from pg_class) + (select count(*) from pg_attribute)"


def run(lab: Lab) -> Findings:
    """Ask one by one, then all at once; then make temporary queues and count."""
    queue = lab.new_queue("text")
    with _answering(lab, queue):
        waits = asyncio.run(_one_by_one(lab.dsn, queue, lab.scaled(SINGLE, 50)))
        lab.report("one by one")
        rates = []
        for number in range(ROUNDS):
            lab.checkpoint()
            rates.append(asyncio.run(_all_at_once(lab.dsn, queue, lab.scaled(SECONDS))))
            lab.report(f"round {number + 1}")
    count = lab.scaled(TEMPORARY_QUEUES, 1000)
    before = lab.number(CATALOGUE)
    for start in range(0, count, 1000):
        amount = min(1000, count - start)
        lab.execute(f"select mbus.create_temporary_queue() from generate_series(1, {amount})")
    grown = lab.number(CATALOGUE) - before
    rate, middle = statistics.median(rates), statistics.median(waits)
    return Findings(
        [
            Figure(
                f"round trips, {ASKERS} asking at once",
                thousands(rate),
                judged=rate,
                unit="/s",
                bar=at_least(5_000),
            ),
            Figure(
                "one round trip, median",
                f"{middle:.1f} ms",
                judged=middle,
                unit="ms",
                bar=at_most(5),
            ),
            Figure(
                f"rows of the catalogue after {count:,} temporary queues",
                f"{grown:+.0f}",
                judged=grown,
                bar=at_most(0),
            ),
        ],
        {"rates": {"round trips": rates}, "waits_ms": waits},
    )


@contextmanager
def _answering(lab: Lab, queue: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.answerer", lab.dsn, queue],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(lab.root / "src"), str(lab.root)))},
        cwd=lab.root,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def _one_by_one(dsn: str, queue: str, count: int) -> list[float]:
    waits = []
    async with AsyncBus(dsn) as bus:
        await bus.request(queue, PAYLOAD, timeout=TIMEOUT)
        for _ in range(count):
            began = time.perf_counter()
            await bus.request(queue, PAYLOAD, timeout=TIMEOUT)
            waits.append((time.perf_counter() - began) * 1000)
    return waits


async def _all_at_once(dsn: str, queue: str, seconds: float) -> float:
    """Count the round trips of many tasks that ask again as soon as they are answered."""
    count = 0
    async with AsyncBus(dsn) as bus:
        await bus.request(queue, PAYLOAD, timeout=TIMEOUT)
        began = time.perf_counter()

        async def ask() -> None:
            nonlocal count
            while time.perf_counter() - began < seconds:
                await bus.request(queue, PAYLOAD, timeout=TIMEOUT)
                count += 1

        await asyncio.gather(*(ask() for _ in range(ASKERS)))
        return count / (time.perf_counter() - began)


SCENARIO = Scenario(
    "request",
    "Request and reply",
    "One client process with one AsyncBus, one answering process with an AsyncWorker in "
    "transaction mode, payload of 200 bytes both ways: 500 requests one after the other, then 3 "
    "rounds of 5 s with 800 tasks that send the next request as soon as they are answered. Then "
    "100,000 temporary queues, with the rows of pg_class and pg_attribute counted before and "
    "after.",
    ROUNDS + 2,
    run,
)
