"""procrastinate's adapter for the harness: batch deferral, finished jobs deleted, LISTEN on.

Stalled jobs are given back by the loop that its documentation describes as a periodic task.
"""

# mypy: ignore-errors
# The peers are installed apart, where the type checker does not look.
from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

import procrastinate

from benchmarks.harness import contract

QUEUE = "bench"
STALLED_SECONDS = 10
CONNECTIONS_MAX = 20


class Procrastinate:
    def __init__(self, settings: contract.Settings) -> None:
        self._settings = settings
        connector = procrastinate.PsycopgConnector(
            conninfo=settings.database_url, min_size=2, max_size=CONNECTIONS_MAX
        )
        self._app = procrastinate.App(connector=connector)
        self._jobs: contract.Jobs | None = None

        @self._app.task(name="job", queue=QUEUE)
        async def job(payload: str) -> None:
            await self._jobs(payload)

        self._task = job

    async def prepare(self) -> contract.Description:
        await self._app.open_async()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()
        tables = ["public.procrastinate_jobs", "public.procrastinate_events"]
        release = version("procrastinate")
        return contract.Description("procrastinate", release, release, tables)

    async def post(self, payloads: list[str]) -> None:
        await self._task.batch_defer_async(*({"payload": each} for each in payloads))

    async def work(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        self._jobs = jobs
        worker = asyncio.create_task(
            self._app.run_worker_async(
                queues=[QUEUE],
                concurrency=self._settings.worker_count,
                install_signal_handlers=False,
                delete_jobs="successful",
                update_heartbeat_interval=2,
                stalled_worker_timeout=STALLED_SECONDS,
                shutdown_graceful_timeout=2,
            )
        )
        stalled = asyncio.create_task(self._retry_stalled())
        stop = asyncio.create_task(stopping.wait())
        await asyncio.wait([worker, stop], return_when=asyncio.FIRST_COMPLETED)
        stalled.cancel()
        if not worker.done():
            worker.cancel()
        try:
            await worker
        except asyncio.CancelledError:
            if not stopping.is_set():
                raise

    async def _retry_stalled(self) -> None:
        manager = self._app.job_manager
        while True:
            await asyncio.sleep(2)
            try:
                found = await manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_SECONDS)
                for job in found:
                    await manager.retry_job(job)
            except Exception as error:  # noqa: BLE001 - the database may be away
                contract.log(f"stalled jobs: {error}")

    async def depth(self) -> None:
        return None

    async def close(self) -> None:
        await self._app.close_async()


async def _main() -> int:
    settings = contract.Settings.read()
    return await contract.run(settings, Procrastinate(settings))


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
