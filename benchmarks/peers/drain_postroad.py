"""Fills a queue and drains it with AsyncWorker; prints messages a second.

Arguments: DSN, queue, messages, prefetch (0: the default), mode, concurrency.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from postroad.bus import AsyncBus, AsyncWorker

PAYLOAD = "x" * 200


async def main(
    dsn: str, queue: str, messages: int, prefetch: int, mode: str, concurrency: int = 1
) -> None:
    """Post, drain, and check that all were handled. The clock stops when nothing is left."""
    async with AsyncBus(dsn, notify=False) as bus:
        await bus.create_queue(queue, payload="text")
        for first in range(0, messages, 1000):
            await bus.post_many(queue, [PAYLOAD] * min(1000, messages - first))
    worker = AsyncWorker(dsn)
    done = 0
    is_done = asyncio.Event()

    async def handle(*_: Any) -> None:
        nonlocal done
        done += 1
        if done == messages:
            is_done.set()

    worker.handler(
        queue,
        mode="lease" if mode == "lease" else "transaction",
        prefetch=prefetch or None,
        concurrency=concurrency,
    )(handle)
    began = time.monotonic()
    await worker.start()
    await is_done.wait()
    # Stopping commits or acks the last ones: only then are they consumed.
    await worker.stop()
    took = time.monotonic() - began
    async with AsyncBus(dsn, notify=False) as bus:
        left = await bus.consume(queue, amount=10)
        await bus.drop_queue(queue)
    if left or done != messages:
        raise SystemExit(f"{done} of {messages} handled, {len(left)} left")
    print(messages / took)


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1],
            sys.argv[2],
            int(sys.argv[3]),
            int(sys.argv[4]),
            sys.argv[5],
            int(sys.argv[6]),
        )
    )
