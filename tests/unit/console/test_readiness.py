"""The health check answers soon, also while the database does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from postroad.console.application import probe
from postroad.console.connections import Connections


async def test_a_silent_database_is_reported_before_the_pool_gives_up() -> None:
    connections: list[asyncio.StreamWriter] = []

    async def never_answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    server = await asyncio.start_server(never_answer, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        f"host=127.0.0.1 port={port} dbname=x user=x",
        open=False,
        min_size=1,
        num_workers=1,
        timeout=3600,
    )
    await pool.open(wait=False)
    try:
        async with asyncio.timeout(60):
            with pytest.raises(TimeoutError, match="does not answer"):
                await probe(Connections(pool.connection))
    finally:
        server.close()
        for connection in connections:
            connection.close()
        await pool.close()
