"""Postroad's adapter for the public harness: `python -m benchmarks.harness.adapter`.

The environment and the records are described in `contract`. `POSTROAD_MODE` is `lease` (default),
`transaction`,
`batch` or `cursor`. `POSTROAD_PREFETCH` overrides the worker's default, and
`POSTROAD_TTL_SECONDS` that of a lease. `POSTROAD_WORKERS` workers (default 1) share `WORKER_COUNT`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import psycopg
import uvloop

from benchmarks.harness import contract
from postroad.bus import AsyncBus, AsyncWorker, WorkerSettings
from postroad.bus.schema import BUS
from postroad.postgres import install

QUEUE = "long_horizon_bench"
CURSOR = "reader"
# Written by transactional handlers in their own transaction, while a ledger is kept.
EFFECT = "public.harness_effect"
# Two calls at a time: one batch is taken while the other is worked on.
BATCH, BATCHES = 500, 2


class Postroad:
    """A queue of texts, posted in batches, handled by AsyncWorker."""

    def __init__(self, settings: contract.Settings) -> None:
        self._settings = settings
        self._mode = os.environ.get("POSTROAD_MODE", "lease")
        prefetch = os.environ.get("POSTROAD_PREFETCH")
        self._prefetch = int(prefetch) if prefetch else None
        self._workers = int(os.environ.get("POSTROAD_WORKERS", "1"))
        self._ttl = timedelta(seconds=float(os.environ.get("POSTROAD_TTL_SECONDS", "30")))
        self._bus = AsyncBus(settings.database_url)

    async def prepare(self) -> contract.Description:
        with psycopg.connect(self._settings.database_url) as connection:
            install(connection, BUS)
            connection.execute(
                f"create table if not exists {EFFECT}"
                " (number bigint not null, at timestamptz not null default clock_timestamp())"
            )
        known = {each.queue for each in await self._bus.queues()}
        if QUEUE not in known:
            await self._bus.create_queue(QUEUE, payload="text")
            if self._mode == "cursor":
                await self._bus.create_consumer(QUEUE, CURSOR, contract="cursor")
                await self._bus.drop_consumer(QUEUE, "default")
        with psycopg.connect(self._settings.database_url) as connection:
            found = connection.execute(
                "select format('%I.%I', schemaname, tablename) from pg_tables"
                " where schemaname = 'mbus' order by 1"
            ).fetchall()
        mode = "" if self._mode == "lease" else f"-{self._mode}"
        release = version("postroad")
        return contract.Description(f"postroad{mode}", release, release, [row[0] for row in found])

    async def post(self, payloads: list[str]) -> None:
        await self._bus.post_many(QUEUE, payloads)

    async def work(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        await asyncio.gather(*(self._serve(jobs, stopping) for _ in range(self._workers)))

    async def _serve(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        settings = WorkerSettings(grace=timedelta(seconds=2))
        worker = AsyncWorker(self._settings.database_url, settings)
        options: dict[str, Any] = {
            "concurrency": -(-self._settings.worker_count // self._workers),
            "prefetch": self._prefetch,
        }
        if self._mode == "lease":

            @worker.handler(QUEUE, mode="lease", ttl=self._ttl, **options)
            async def leased(message: Any) -> None:
                await jobs(message.data)

        elif self._mode in ("batch", "cursor"):
            limit = asyncio.Semaphore(self._settings.worker_count)

            async def bounded(job: dict[str, Any]) -> None:
                async with limit:
                    await jobs.do(job)

            consumer, batches = ("default", BATCHES) if self._mode == "batch" else (CURSOR, 1)

            @worker.handler(QUEUE, consumer, concurrency=batches, batch=BATCH)
            async def whole(messages: Any, connection: Any) -> None:
                batch = [json.loads(each.data) for each in messages]
                await asyncio.gather(*map(bounded, batch))
                await self._record(connection, batch)

        else:

            @worker.handler(QUEUE, mode="transaction", **options)
            async def taken(message: Any, connection: Any) -> None:
                job = json.loads(message.data)
                await jobs.do(job)
                await self._record(connection, [job])

        await worker.start()
        ends = [asyncio.create_task(worker.join()), asyncio.create_task(stopping.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await worker.stop()
        await ends[0]

    async def _record(self, connection: Any, batch: list[dict[str, Any]]) -> None:
        """Write what was done in the transaction that consumes it, while a ledger is kept."""
        if self._settings.ledger_folder:
            numbers = [job["seq"] for job in batch]
            await connection.execute(f"insert into {EFFECT} select unnest(%s::int8[])", (numbers,))

    async def depth(self) -> int:
        return sum(each.ready for each in await self._bus.status(QUEUE))

    async def close(self) -> None:
        await self._bus.close()


async def _main() -> int:
    settings = contract.Settings.read()
    return await contract.run(settings, Postroad(settings))


if __name__ == "__main__":
    sys.exit(uvloop.run(_main()))
