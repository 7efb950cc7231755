"""absurd's adapter for the harness: tasks without steps, claimed in batches.

It has no call that spawns several tasks; its SQL function is called for each, in one pipeline.
"""

# mypy: ignore-errors
# The peers are installed apart, where the type checker does not look.
from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd

from benchmarks.harness import contract

QUEUE = "bench"
TASK = "job"
CLAIM_SECONDS = 10
POLL_SECONDS = 0.02


class Absurd:
    def __init__(self, settings: contract.Settings) -> None:
        self._settings = settings
        self._producer: psycopg.AsyncConnection | None = None

    async def prepare(self) -> contract.Description:
        async with await self._connect() as connection:
            found = await connection.execute("select to_regnamespace('absurd') is not null")
            if not (await found.fetchone())[0]:
                await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        app = AsyncAbsurd(self._settings.database_url, queue_name=QUEUE)
        await app.create_queue()
        await app.close()
        release = version("absurd-sdk")
        tables = [f"absurd.t_{QUEUE}", f"absurd.r_{QUEUE}"]
        return contract.Description("absurd", release, release, tables)

    async def post(self, payloads: list[str]) -> None:
        if self._producer is None or self._producer.closed:
            self._producer = await self._connect()
        statement = "select absurd.spawn_task(%s, %s, %s::jsonb, '{}'::jsonb)"
        async with self._producer.transaction(), self._producer.cursor() as cursor:
            await cursor.executemany(statement, [(QUEUE, TASK, each) for each in payloads])

    async def work(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        app = AsyncAbsurd(self._settings.database_url, queue_name=QUEUE)

        @app.register_task(TASK)
        async def handle(params, context) -> None:  # noqa: ARG001 - no step is needed
            await jobs.do(params)

        run = asyncio.create_task(
            app.start_worker(
                concurrency=self._settings.worker_count,
                batch_size=self._settings.worker_count,
                claim_timeout=CLAIM_SECONDS,
                poll_interval=POLL_SECONDS,
            )
        )
        stop = asyncio.create_task(stopping.wait())
        await asyncio.wait([run, stop], return_when=asyncio.FIRST_COMPLETED)
        app.stop_worker()
        await run
        await app.close()

    async def depth(self) -> None:
        return None

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()

    async def _connect(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self._settings.database_url, autocommit=True)


async def _main() -> int:
    settings = contract.Settings.read()
    return await contract.run(settings, Absurd(settings))


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
