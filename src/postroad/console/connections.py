"""How pages reach the rooms: on a connection of the pool, in one transaction each.

Some rooms speak to the database by awaiting, some by blocking. What blocks runs in a thread, and
only here, so that no page can stop the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from postroad.postgres.connections import connect, connect_async

CONNECT_TIMEOUT = timedelta(seconds=2)

P = ParamSpec("P")
T = TypeVar("T")


class Connections:
    """Calls functions of rooms' `status` and `operations` with a connection as first argument."""

    def __init__(self, pool: AsyncConnectionPool[Any], blocking_pool: ConnectionPool[Any]) -> None:
        self._pool = pool
        self._blocking_pool = blocking_pool

    async def run(
        self,
        function: Callable[Concatenate[AsyncConnection[Any], P], Awaitable[T]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function that awaits; committed when it returns."""
        async with self._pool.connection() as connection:
            return await function(connection, *arguments, **named)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend a connection in autocommit mode, for work in batches."""
        async with self._pool.connection() as connection:
            await connection.set_autocommit(True)
            try:
                yield connection
            finally:
                await connection.set_autocommit(False)

    async def run_blocking(
        self,
        function: Callable[Concatenate[Connection[Any], P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function that blocks, in a thread; committed when it returns."""

        def call() -> T:
            with self._blocking_pool.connection() as connection:
                return function(connection, *arguments, **named)

        return await asyncio.to_thread(call)


class DirectConnections(Connections):
    """The same over a connection per call: for a database that may not be there, or not yet.

    A pool would go on trying; here whoever asks is told at once. Raises DatabaseUnavailable.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def run(
        self,
        function: Callable[Concatenate[AsyncConnection[Any], P], Awaitable[T]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function that awaits; committed when it returns."""
        async with await connect_async(
            self._dsn, application_name="postroad console", connect_timeout=CONNECT_TIMEOUT
        ) as connection:
            return await function(connection, *arguments, **named)

    async def run_blocking(
        self,
        function: Callable[Concatenate[Connection[Any], P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function that blocks, in a thread; committed when it returns."""

        def call() -> T:
            with connect(
                self._dsn, application_name="postroad console", connect_timeout=CONNECT_TIMEOUT
            ) as connection:
                return function(connection, *arguments, **named)

        return await asyncio.to_thread(call)
