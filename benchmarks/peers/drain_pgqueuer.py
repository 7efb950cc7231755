"""Fills pgqueuer with jobs and drains them; prints jobs a second.

Run with the peers' folder on the path: DSN, jobs, batch size.
"""

# mypy: ignore-errors
# The peers are installed apart, where the type checker does not look.
from __future__ import annotations

import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

PAYLOAD = b"x" * 200


async def main(dsn: str, jobs: int, batch_size: int) -> None:
    """Enqueue, drain, and check that all were done. The clock stops when nothing is left."""
    connection = await asyncpg.connect(dsn)
    queuer = PgQueuer.from_asyncpg_connection(connection)
    queries = Queries.from_asyncpg_connection(connection)
    if not await queries.schema_is_installed():
        await queries.install()
    for first in range(0, jobs, 1000):
        amount = min(1000, jobs - first)
        await queries.enqueue(["empty"] * amount, [PAYLOAD] * amount, [0] * amount)
    done = 0

    @queuer.entrypoint("empty")
    async def empty(job: Job) -> None:  # noqa: ARG001 - carried, not used
        nonlocal done
        done += 1

    began = time.monotonic()
    await queuer.run(batch_size=batch_size, mode=QueueExecutionMode.drain)
    took = time.monotonic() - began
    if done != jobs:
        raise SystemExit(f"{done} of {jobs} jobs were done")
    print(jobs / took)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
