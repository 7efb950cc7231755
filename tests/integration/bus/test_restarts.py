"""PostgreSQL is stopped the hard way under load: nothing is lost, nobody must be restarted."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

import psycopg
import pytest

from postroad.bus import AsyncBus
from postroad.bus.schema import BUS
from postroad.postgres.migrator import install
from postroad.postgres.postmaster import read_postmaster
from postroad.testing import TestServer, wait_until_async
from tests.integration.bus.crew import Crew

pytestmark = pytest.mark.chaos

MESSAGES = 2_000


@pytest.fixture
async def fragile(own_server):
    """The DSN of a database on a server that the test may kill."""
    dsn = own_server.dsn(own_server.create())
    with psycopg.connect(dsn) as connection:
        install(connection, BUS)
    async with AsyncBus(dsn) as bus:
        await bus.create_queue("orders", payload="text")
        await bus.post_many("orders", [str(n) for n in range(MESSAGES)])
    with psycopg.connect(dsn) as connection:
        connection.execute("create table done (data text)")
    return dsn


def _look(dsn: str, statement: str) -> int:
    try:
        with psycopg.connect(dsn, connect_timeout=2) as connection:
            row = connection.execute(statement).fetchone()
            return row[0] if row else 0
    except psycopg.OperationalError:
        return 0


async def _restart(own_server: TestServer) -> None:
    """Stop the server as `pg_ctl stop -m immediate` does and let it recover."""
    embedded = own_server.embedded
    postmaster = read_postmaster(embedded.cluster.data)
    assert postmaster is not None
    os.kill(postmaster.pid, signal.SIGQUIT)

    async def is_down() -> bool:
        return not embedded.is_running

    await wait_until_async(is_down, what="the server is down")
    assert await asyncio.to_thread(embedded.revive)


@pytest.mark.timeout(120)
async def test_transactional_work_survives_restarts_exactly_once(colour, own_server, fragile):
    crew = Crew(colour, fragile)
    crew.on(
        "orders",
        lambda message: [f"insert into done values ('{message.data}')"],
        concurrency=2,
        prefetch=5,
    )
    count = "select count(*) from done"
    async with crew:
        for part in (1, 2):

            async def is_under_way(part: int = part) -> bool:
                done = await asyncio.to_thread(_look, fragile, count)
                return done > part * MESSAGES // 10

            await wait_until_async(is_under_way, what="some work is done")
            await _restart(own_server)

        async def is_done() -> bool:
            return await asyncio.to_thread(_look, fragile, count) >= MESSAGES

        await wait_until_async(is_done, what="all work is done", timeout_seconds=60)
    assert _look(fragile, count) == MESSAGES
    assert _look(fragile, "select count(distinct data) from done") == MESSAGES


@pytest.mark.timeout(120)
async def test_leased_work_survives_a_restart_at_least_once(colour, own_server, fragile):
    seen: list[str] = []
    crew = Crew(colour, fragile)
    crew.on(
        "orders",
        lambda message: seen.append(message.data),
        mode="lease",
        concurrency=2,
        prefetch=50,
        ttl=timedelta(seconds=2),
    )
    async with crew:

        async def is_under_way() -> bool:
            return len(seen) > MESSAGES // 10

        await wait_until_async(is_under_way, what="some work is done")
        await _restart(own_server)

        async def is_done() -> bool:
            return len(set(seen)) == MESSAGES

        await wait_until_async(is_done, what="all work is done", timeout_seconds=60)


@pytest.mark.timeout(120)
@pytest.mark.both_versions
async def test_a_subscription_survives_a_restart(own_server, fragile):
    seen: set[str] = set()
    restarts = 0
    async with AsyncBus(fragile) as bus, bus.subscribe("orders") as messages:
        async for message in messages:
            seen.add(message.data)
            if len(seen) == 20 and not restarts:
                restarts += 1
                await _restart(own_server)
            if len(seen) == 60:
                break
    assert len(seen) == 60
