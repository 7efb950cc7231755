"""A program that runs under any version: `python program.py VERB DSN ...`.

It uses what every version offers, and imports nothing of this package, because it runs with the
source of another version.

| verb | does | prints |
|---|---|---|
| `fill` | makes queues, and messages in every state | the leases that it holds |
| `queues N` | makes queues `q0`, `q1`, ... | nothing |
| `traffic N FIRST` | posts numbers from FIRST and consumes, until SIGTERM | what it did |
| `work N` | runs a worker with a handler for each of them, until SIGTERM | nothing |

The last two print a line when they have begun.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from postroad.bus import AsyncBus, AsyncWorker, Bus

CLIENTS = 4


def fill(dsn: str) -> None:
    """Make a message in every state that one can be in."""
    with Bus(dsn) as bus:
        for queue in ("plain", "after", "late", "grouped", "leased", "dead", "once"):
            bus.create_queue(queue, payload="jsonb")
        bus.create_queue("fan", payload="text")
        bus.create_consumer("fan", "even", "(t.properties->'even')='yes'")
        iids = bus.post_many("plain", range(10))
        bus.post("after", 0, headers={"consume_after": iids[0]})
        bus.post("late", 0, delayed_until=datetime.now(UTC) + timedelta(seconds=3))
        for number in range(6):
            bus.post("grouped", number, headers={"group": "ab"[number % 2]})
            bus.post("fan", str(number), properties={"even": "no" if number % 2 else "yes"})
        bus.post("once", 0, headers={"dedup_key": "k", "dedup_window": "1 hour"})
        bus.post_many("leased", range(4))
        held = bus.lease("leased", amount=2, ttl=timedelta(hours=1))
        bus.alter_consumer("dead", "default", max_attempts=1)
        bus.post_many("dead", range(2))
        for message in bus.lease("dead", amount=2):
            bus.nack(message, error="refused")
        json.dump([[message.iid, message.token] for message in held], sys.stdout)


def queues(dsn: str, count: str) -> None:
    """Make the queues of the load."""
    with Bus(dsn) as bus:
        for number in range(int(count)):
            bus.create_queue(f"q{number}", payload="jsonb")


async def traffic(dsn: str, count: str, first: str) -> None:
    """Post and consume on random queues; each client has a session of its own."""
    stop = _stop_event()
    result: dict[str, Any] = {"posted": [], "calls": [], "errors": [], "deadlocks": 0}
    numbers = itertools.count(int(first))
    ready = asyncio.Semaphore(0)

    async def client(seed: int) -> None:
        choose = random.Random(seed)
        async with (
            AsyncBus(dsn, listen=False) as bus,
            await psycopg.AsyncConnection.connect(dsn) as session,
        ):
            own = AsyncBus(session)
            ready.release()
            while not stop.is_set():
                queue, began = f"q{choose.randrange(int(count))}", time.monotonic()
                try:
                    if choose.random() < 0.5:
                        number = next(numbers)
                        await bus.post(queue, number)
                        result["posted"].append(number)
                    else:
                        async with session.transaction():
                            for message in await own.consume(queue, amount=10):
                                await session.execute(
                                    "insert into done values (%s)", [message.data]
                                )
                except psycopg.errors.DeadlockDetected:
                    # Rolled back; clients repeat it.
                    result["deadlocks"] += 1
                # Whatever else a client sees is a finding.
                except Exception as error:  # noqa: BLE001
                    result["errors"].append(f"{type(error).__name__}: {error}")
                result["calls"].append([began, time.monotonic() - began])
                await asyncio.sleep(0.005)

    clients = asyncio.gather(*(client(int(first) + number) for number in range(CLIENTS)))
    for _ in range(CLIENTS):
        await ready.acquire()
    _begun()
    await clients
    json.dump(result, sys.stdout)


async def work(dsn: str, count: str) -> None:
    """Handle messages with a worker."""
    stop = _stop_event()
    worker = AsyncWorker(dsn)

    async def handle(message: Any, connection: Any) -> None:
        await connection.execute("insert into done values (%s)", [message.data])

    for number in range(int(count)):
        worker.handler(f"q{number}")(handle)
    async with worker:
        _begun()
        await stop.wait()


def _begun() -> None:
    sys.stdout.write("begun\n")
    sys.stdout.flush()


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop


if __name__ == "__main__":
    chosen: Any = {"fill": fill, "queues": queues, "traffic": traffic, "work": work}[sys.argv[1]]
    outcome = chosen(*sys.argv[2:])
    if outcome is not None:
        asyncio.run(outcome)
