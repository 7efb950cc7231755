"""Fills procrastinate with jobs and drains them; prints jobs a second.

Run with the peers' folder on the path: DSN, jobs, concurrency.
"""

# mypy: ignore-errors
# The peers are installed apart, where the type checker does not look.
from __future__ import annotations

import asyncio
import sys
import time

import procrastinate

PAYLOAD = "x" * 200


async def main(dsn: str, jobs: int, concurrency: int) -> None:
    """Defer, drain with a worker that stops when it has caught up, and check that all were done."""
    connector = procrastinate.PsycopgConnector(conninfo=dsn, min_size=2, max_size=concurrency + 2)
    app = procrastinate.App(connector=connector)
    done = 0

    @app.task(name="empty", queue="bench")
    async def empty(data: str) -> None:  # noqa: ARG001 - the payload is carried, not used
        nonlocal done
        done += 1

    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        for first in range(0, jobs, 1000):
            amount = min(1000, jobs - first)
            await empty.batch_defer_async(*({"data": PAYLOAD} for _ in range(amount)))
        began = time.monotonic()
        await app.run_worker_async(
            queues=["bench"],
            wait=False,
            concurrency=concurrency,
            install_signal_handlers=False,
            delete_jobs="successful",
        )
        took = time.monotonic() - began
    if done != jobs:
        raise SystemExit(f"{done} of {jobs} jobs were done")
    print(jobs / took)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
