"""Connections of the console: runs functions of components on a pool, each in a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from postroad.postgres.calls import Connection
from postroad.postgres.connections import connect_async

CONNECT_TIMEOUT = timedelta(seconds=2)

P = ParamSpec("P")
T = TypeVar("T")


class Connections:
    """Calls functions whose first argument is a connection: `status`, `operations`, resources."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._connect = connect

    async def run(
        self,
        function: Callable[Concatenate[Connection, P], Awaitable[T]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function and commit when it returns."""
        async with self._connect() as connection:
            return await function(connection, *arguments, **named)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """Yield a connection in autocommit mode, for work in batches."""
        async with self._connect() as connection:
            await connection.set_autocommit(True)
            try:
                yield connection
            finally:
                await connection.set_autocommit(False)


class Place(Connections):
    """Calls functions with a value in place of a connection: for lists that are not in a table."""

    def __init__(self, value: Any) -> None:
        super().__init__(lambda: nullcontext(value))


@asynccontextmanager
async def connect_directly(dsn: str) -> AsyncIterator[Connection]:
    """Open a connection: for a database that may be unavailable.

    A pool would keep trying; here the call fails immediately. Raises DatabaseUnavailable.
    """
    async with await connect_async(
        dsn, application_name="postroad console", connect_timeout=CONNECT_TIMEOUT
    ) as connection:
        yield connection
