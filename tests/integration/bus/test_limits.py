"""Limits hold over workers of two processes; what counts is the clock of the database."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psycopg
import pytest

from postroad.bus import Bus
from postroad.testing import wait_until

# Four workers, until the input ends.
PROCESS = """
import asyncio, sys, psycopg
from postroad.bus import AsyncWorker

async def main():
    workers = [AsyncWorker(sys.argv[1]) for _ in range(4)]
    for worker in workers:
        @worker.handler("orders", mode=sys.argv[2], concurrency=4)
        async def handle(message, connection=None):
            async with await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True) as own:
                await own.execute(
                    "with begun as materialized (select clock_timestamp() as at, pg_sleep(0.02))"
                    " insert into run select at, clock_timestamp() from begun")
        await worker.start()
    await asyncio.to_thread(sys.stdin.read)
    for worker in workers:
        await worker.stop()

asyncio.run(main())
"""
RATE, BURST, MESSAGES = 60, 15, 150
OVERLAP = """
select max((select count(*) from run b where b.began <= a.began and b.ended > a.began)) from run a
"""


@pytest.mark.parametrize("mode", ["transaction", "lease"])
def test_rate_and_concurrency_hold_over_eight_workers_of_two_processes(
    database: str, mode: str
) -> None:
    with Bus(database) as bus, psycopg.connect(database, autocommit=True) as own:
        bus.create_queue("orders", payload="text")
        bus.limit_consumer("orders", rate=RATE, burst=BURST, concurrency=5)
        own.execute("create table run (began timestamptz, ended timestamptz)")
        bus.post_many("orders", ["x"] * MESSAGES)
        command = [sys.executable, "-c", PROCESS, database, mode]
        processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
        try:

            def counted() -> Any:
                return own.execute("select count(*) >= %s from run", (MESSAGES,)).fetchone()

            wait_until(lambda: counted() == (True,), what="all were handled", timeout_seconds=120)
        finally:
            for process in processes:
                process.communicate()
        assert [process.returncode for process in processes] == [0, 0]
        found = own.execute(
            "select count(*), extract(epoch from max(began) - min(began))::float8 from run"
        ).fetchone()
        overlap = own.execute(OVERLAP).fetchone()
    assert found is not None
    assert overlap is not None
    assert found[0] == MESSAGES
    # No faster than the rate after the burst, within 5 %.
    assert found[1] >= 0.95 * (MESSAGES - BURST) / RATE
    assert 1 < overlap[0] <= 5
