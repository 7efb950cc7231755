"""pgmq's adapter for the harness: its SQL installed, its asyncpg client, batches both ways.

A few readers share what is in flight: each reads a batch, works on it concurrently, and deletes it
with one call. More readers with smaller batches contend for the same rows and are slower.
"""

# mypy: ignore-errors
# The peers are installed apart, where the type checker does not look.
from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path

import asyncpg
import pgmq
import uvloop
from pgmq.async_queue import PGMQueue

from benchmarks.harness import contract

QUEUE = "long_horizon_bench"
READERS = 4
VISIBILITY_SECONDS = 10
IDLE_SECONDS = 0.005
RETRY_SECONDS = 0.2


class Pgmq:
    def __init__(self, settings: contract.Settings) -> None:
        self._settings = settings
        self._queue = PGMQueue(
            conn_string=settings.database_url, init_extension=False, pool_size=READERS + 2
        )

    async def prepare(self) -> contract.Description:
        connection = await asyncpg.connect(self._settings.database_url)
        try:
            if not await connection.fetchval("select to_regnamespace('pgmq') is not null"):
                sql = Path(pgmq.__file__).parent / "sql" / "pgmq.sql"
                await connection.execute(sql.read_text(encoding="utf-8"))
        finally:
            await connection.close()
        await self._queue.init()
        await self._queue.create_queue(QUEUE)
        tables = [f"pgmq.q_{QUEUE}", f"pgmq.a_{QUEUE}"]
        return contract.Description("pgmq", version("pgmq"), version("pgmq"), tables)

    async def post(self, payloads: list[str]) -> None:
        await self._queue.send_batch(QUEUE, [json.loads(each) for each in payloads])

    async def work(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        readers = min(READERS, self._settings.worker_count)
        batch = -(-self._settings.worker_count // readers)
        await asyncio.gather(*(self._read(jobs, stopping, batch) for _ in range(readers)))

    async def _read(self, jobs: contract.Jobs, stopping: asyncio.Event, batch: int) -> None:
        done: list[int] = []
        while not stopping.is_set():
            try:
                if done:
                    await self._queue.delete_batch(QUEUE, done)
                    done = []
                found = await self._queue.read_batch(QUEUE, VISIBILITY_SECONDS, batch)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                contract.log(f"pgmq: {error}")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not found:
                await asyncio.sleep(IDLE_SECONDS)
                continue
            await asyncio.gather(*(jobs.do(each.message) for each in found))
            done = [each.msg_id for each in found]
        if done:
            await self._queue.delete_batch(QUEUE, done)

    async def depth(self) -> None:
        return None

    async def close(self) -> None:
        await self._queue.close()


async def _main() -> int:
    settings = contract.Settings.read()
    return await contract.run(settings, Pgmq(settings))


if __name__ == "__main__":
    sys.exit(uvloop.run(_main()))
