"""pgqueuer's adapter for the harness: asyncpg and uvloop, batches of half of what is in flight.

It asks for a limit of at least twice the batch; its buffer writes finished jobs in batches.
"""

# mypy: ignore-errors
# The peers are installed apart, where the type checker does not look.
from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from importlib.metadata import version

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.harness import contract

NAME = "job"
HEARTBEAT_TIMEOUT = timedelta(seconds=10)
# One listens, one reads, one writes the buffers, one produces, and one to spare.
CONNECTIONS_MAX = 5


class Pgqueuer:
    def __init__(self, settings: contract.Settings) -> None:
        self._settings = settings

    async def prepare(self) -> contract.Description:
        self._pool = await asyncpg.create_pool(
            self._settings.database_url, min_size=2, max_size=CONNECTIONS_MAX
        )
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        if not await self._queries.schema_is_installed():
            await self._queries.install()
        release = version("pgqueuer")
        tables = ["public.pgqueuer", "public.pgqueuer_log"]
        return contract.Description("pgqueuer", release, release, tables)

    async def post(self, payloads: list[str]) -> None:
        amount = len(payloads)
        data = [each.encode() for each in payloads]
        await self._queries.enqueue([NAME] * amount, data, [0] * amount)

    async def work(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        queuer = PgQueuer.from_asyncpg_pool(self._pool)

        @queuer.entrypoint(NAME)
        async def handle(job: Job) -> None:
            await jobs(job.payload)

        batch = max(1, self._settings.worker_count // 2)
        run = asyncio.create_task(
            queuer.run(
                batch_size=batch,
                max_concurrent_tasks=2 * batch,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                shutdown_on_listener_failure=True,
            )
        )
        stop = asyncio.create_task(stopping.wait())
        await asyncio.wait([run, stop], return_when=asyncio.FIRST_COMPLETED)
        queuer.shutdown.set()
        await run

    async def depth(self) -> None:
        return None

    async def close(self) -> None:
        await self._pool.close()


async def _main() -> int:
    settings = contract.Settings.read()
    return await contract.run(settings, Pgqueuer(settings))


if __name__ == "__main__":
    sys.exit(uvloop.run(_main()))
