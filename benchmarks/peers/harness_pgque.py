"""PgQue's adapter for the harness: one consumer, and a whole batch acked by one call.

The package index has its clients but not its SQL; `PGQUE_SQL` names the file `pgque.sql` of a
release. The ticker and the maintenance run here, since the embedded server has no pg_cron.
"""

# mypy: ignore-errors
# The peers are installed apart, where the type checker does not look.
from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import psycopg

from benchmarks.harness import contract

QUEUE = "bench"
CONSUMER = "workers"
TICK_SECONDS = 0.05
MAINTENANCE_SECONDS = 10
IDLE_SECONDS = 0.01
RETRY_SECONDS = 0.2
MESSAGES_MAX = 2_147_483_647
CONFIGURATION = {
    "ticker_max_count": "200",
    "ticker_max_lag": "100 milliseconds",
    "ticker_idle_period": "500 milliseconds",
}


class Pgque:
    def __init__(self, settings: contract.Settings) -> None:
        self._settings = settings
        self._producer: psycopg.AsyncConnection | None = None

    async def prepare(self) -> contract.Description:
        async with await self._connect() as connection:
            found = await connection.execute("select to_regnamespace('pgque') is not null")
            if not (await found.fetchone())[0]:
                await connection.execute(_schema())
            known = await connection.execute(
                "select from pgque.queue where queue_name = %s", (QUEUE,)
            )
            if not known.rowcount:
                await connection.execute("select pgque.create_queue(%s)", (QUEUE,))
                await connection.execute("select pgque.subscribe(%s, %s)", (QUEUE, CONSUMER))
                for name, value in CONFIGURATION.items():
                    await connection.execute(
                        "select pgque.set_queue_config(%s, %s, %s)", (QUEUE, name, value)
                    )
            release = await connection.execute("select pgque.version()")
            version = str((await release.fetchone())[0])
        return contract.Description("pgque", version, version, [])

    async def post(self, payloads: list[str]) -> None:
        if self._producer is None or self._producer.closed:
            self._producer = await self._connect()
        await self._producer.execute(
            "select pgque.send_batch(%s, %s, %s::text[])", (QUEUE, "default", payloads)
        )

    async def work(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        loops = [
            self._repeat(stopping, "select pgque.ticker(%s)", (QUEUE,), TICK_SECONDS),
            self._repeat(stopping, "select pgque.maint()", (), MAINTENANCE_SECONDS),
            self._repeat(
                stopping, "select pgque.maint_rotate_tables_step2()", (), MAINTENANCE_SECONDS
            ),
            self._consume(jobs, stopping),
        ]
        await asyncio.gather(*loops)

    async def _consume(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        limit = asyncio.Semaphore(self._settings.worker_count)

        async def handle(payload: str) -> None:
            async with limit:
                await jobs(payload)

        while not stopping.is_set():
            try:
                async with await self._connect() as connection:
                    while not stopping.is_set():
                        found = await connection.execute(
                            "select batch_id, payload from pgque.receive(%s, %s, %s)",
                            (QUEUE, CONSUMER, MESSAGES_MAX),
                        )
                        rows = await found.fetchall()
                        if not rows:
                            await asyncio.sleep(IDLE_SECONDS)
                            continue
                        await asyncio.gather(*(handle(payload) for _, payload in rows))
                        await connection.execute("select pgque.ack(%s)", (rows[0][0],))
            except (OSError, psycopg.Error) as error:
                contract.log(f"consumer: {str(error).strip()}")
                await asyncio.sleep(RETRY_SECONDS)

    async def _repeat(
        self, stopping: asyncio.Event, statement: str, values: tuple[str, ...], seconds: float
    ) -> None:
        while not stopping.is_set():
            try:
                async with await self._connect() as connection:
                    while not stopping.is_set():
                        await connection.execute(statement, values)
                        await _pause(stopping, seconds)
            except (OSError, psycopg.Error) as error:
                contract.log(f"{statement}: {str(error).strip()}")
                await asyncio.sleep(RETRY_SECONDS)

    async def depth(self) -> None:
        return None

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()

    async def _connect(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self._settings.database_url, autocommit=True)


def _schema() -> str:
    return Path(os.environ["PGQUE_SQL"]).read_text(encoding="utf-8")


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return


async def _main() -> int:
    settings = contract.Settings.read()
    return await contract.run(settings, Pgque(settings))


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
