"""awa's adapter for the harness: its Python binding on queue storage, COPY for producers."""

# mypy: ignore-errors
# The peers are installed apart, where the type checker does not look.
from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from importlib.metadata import version

from awa import AsyncClient

from benchmarks.harness import contract

QUEUE = "bench"
CONNECTIONS_MAX = 20


@dataclass
class BenchJob:
    seq: int
    at: float
    padding: str


class Awa:
    def __init__(self, settings: contract.Settings) -> None:
        self._settings = settings
        self._client = AsyncClient(settings.database_url, max_connections=CONNECTIONS_MAX)

    async def prepare(self) -> contract.Description:
        await self._client.migrate()
        release = version("awa-pg")
        return contract.Description("awa", release, release, [])

    async def post(self, payloads: list[str]) -> None:
        jobs = [BenchJob(**json.loads(each)) for each in payloads]
        await self._client.enqueue_many_copy(jobs, queue=QUEUE)

    async def work(self, jobs: contract.Jobs, stopping: asyncio.Event) -> None:
        @self._client.task(BenchJob, queue=QUEUE)
        async def handle(job) -> None:
            args = job.args
            await jobs.do({"seq": args.seq, "at": args.at})

        await self._client.start(
            [{"name": QUEUE, "max_workers": self._settings.worker_count, "claimers": 2}],
            poll_interval_ms=20,
            heartbeat_interval_ms=2_000,
            heartbeat_staleness_ms=10_000,
            heartbeat_rescue_interval_ms=2_000,
        )
        await stopping.wait()
        await self._client.shutdown(2_000)

    async def depth(self) -> None:
        return None

    async def close(self) -> None:
        await self._client.close()


async def _main() -> int:
    settings = contract.Settings.read()
    return await contract.run(settings, Awa(settings))


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
