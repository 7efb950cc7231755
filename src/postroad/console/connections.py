"""Connections of the console: runs functions of components on a pool, each in a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from postroad.postgres.calls import Connection
from postroad.postgres.connections import Pool, connect_async

CONNECT_TIMEOUT = timedelta(seconds=2)

P = ParamSpec("P")
T = TypeVar("T")


class Connections:
    """Calls functions whose first argument is a connection: `status`, `operations`, resources."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def run(
        self,
        function: Callable[Concatenate[Connection, P], Awaitable[T]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function and commit when it returns."""
        async with self._connection() as connection:
            return await function(connection, *arguments, **named)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """Yield a connection in autocommit mode, for work in batches."""
        async with self._connection() as connection:
            await connection.set_autocommit(True)
            try:
                yield connection
            finally:
                await connection.set_autocommit(False)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        async with self._pool.connection() as connection:
            yield connection


class Place(Connections):
    """Calls functions with a value in place of a connection: for lists that are not in a table."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        yield self._value


class DirectConnections(Connections):
    """Opens a connection per call: for a database that may be unavailable.

    A pool would keep trying; here the call fails immediately. Raises DatabaseUnavailable.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        async with await connect_async(
            self._dsn, application_name="postroad console", connect_timeout=CONNECT_TIMEOUT
        ) as connection:
            yield connection
