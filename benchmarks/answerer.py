"""A process that answers requests until it is terminated: for the scenario `request`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from postroad.bus import AsyncWorker, Message, WorkerSettings

PREFETCH = 500


async def _serve(dsn: str, queue: str) -> None:
    # The lab maintains already.
    worker = AsyncWorker(dsn, WorkerSettings(maintenance_interval=None))

    @worker.handler(queue, prefetch=PREFETCH)
    async def answer(message: Message, _: Any) -> object:
        return message.data

    await worker.serve()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:3]))
