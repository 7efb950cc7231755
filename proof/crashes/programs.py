"""The programs that are killed. `python -m proof.crashes.programs NAME`; DSNs on standard input.

Each does its work and ends with 0 when there is nothing left to do.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from postroad.bridge import DatabaseBridge
from postroad.bus import AsyncBus, AsyncWorker, Saga, WorkerSettings
from postroad.cli.components import SCHEMAS
from postroad.postgres import install
from postroad.testing import wait_until_async

__all__ = ["PROGRAMS"]

LEASE = timedelta(seconds=2)


async def _until_empty(bus: AsyncBus, queues: tuple[str, ...]) -> None:
    async def is_empty() -> bool:
        return not [each for each in await bus.status() if each.queue in queues and each.depth]

    await wait_until_async(is_empty, what="empty queues", timeout_seconds=120)


async def worker_in_transactions(dsn: str, _: str) -> None:
    """Handle each message in the transaction that consumes it."""
    worker = AsyncWorker(dsn, WorkerSettings(listen=False))

    @worker.handler("work", batch=3)
    async def handle(messages: Any, connection: Any) -> None:
        for message in messages:
            await connection.execute("insert into done values (%s)", (message.data["n"],))

    async with AsyncBus(dsn, listen=False) as bus, worker:
        await _until_empty(bus, ("work",))


async def worker_with_leases(dsn: str, _: str) -> None:
    """Handle leased messages; the work is a transaction of its own."""
    worker = AsyncWorker(dsn, WorkerSettings(listen=False))

    @worker.handler("work", mode="lease", ttl=LEASE)
    async def handle(message: Any) -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await connection.execute("insert into done values (%s)", (message.data["n"],))

    async with AsyncBus(dsn, listen=False) as bus, worker:
        await _until_empty(bus, ("work",))


async def saga_steps(dsn: str, _: str) -> None:
    """Start a saga once and handle its steps; the second one refuses."""
    worker = AsyncWorker(dsn, WorkerSettings(listen=False))

    def register(queue: str) -> None:
        @worker.handler(queue)
        async def handle(message: Any, connection: Any) -> None:
            if queue == "ticket":
                await connection.execute("select mbus.abort_saga(%s, 'sold out')", (message.iid,))
            else:
                await connection.execute("insert into done values (1, %s)", (queue,))

    for queue in ("rooms", "ticket", "cancel_rooms", "cancel_ticket"):
        register(queue)
    async with AsyncBus(dsn, listen=False) as bus, worker:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            found = await connection.execute("select from mbus.saga for update")
            if await found.fetchone() is None:
                saga = Saga("trip", data={"n": 1}).step("rooms", do="rooms", undo="cancel_rooms")
                saga.step("ticket", do="ticket", undo="cancel_ticket", after=["rooms"])
                await saga.start(bus.using(connection))

        async def is_over() -> bool:
            async with await psycopg.AsyncConnection.connect(dsn) as connection:
                found = await connection.execute("select state from mbus.saga")
                return await found.fetchone() == ("compensated",)

        await wait_until_async(is_over, what="a compensated saga", timeout_seconds=120)


async def bridge(source: str, target: str) -> None:
    """Carry the messages of one database to another."""
    async with (
        AsyncBus(source, listen=False) as bus,
        DatabaseBridge("out", source=source, target=target, queue="work"),
    ):

        async def is_empty() -> bool:
            return not [
                each
                for each in await bus.status("work")
                if each.consumer != "default" and each.depth
            ]

        await wait_until_async(is_empty, what="all carried", timeout_seconds=120)


async def migrator(dsn: str, _: str) -> None:
    """Install every schema, each in one transaction."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for schema in SCHEMAS:
            install(connection, schema)


Program = Callable[[str, str], Coroutine[Any, Any, None]]
PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (worker_in_transactions, worker_with_leases, saga_steps, bridge, migrator)
}


def main() -> None:
    """Run a program."""
    source, target = json.load(sys.stdin)
    asyncio.run(PROGRAMS[Path(sys.argv[1]).name](source, target))


if __name__ == "__main__":
    main()
