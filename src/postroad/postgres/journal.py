"""Calls of the functions of one schema, each one durable transaction.

A connection that breaks during COMMIT leaves the outcome of a call unknown. The functions of a
journal are idempotent, so such a call is repeated on another connection until `patience` has
passed. Then the caller gets the driver's error, and nothing was acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from postroad.backoff import CONNECTION_LOST
from postroad.postgres import calls
from postroad.postgres.calls import Connection, Row
from postroad.postgres.connections import parameters

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_DEFAULT = timedelta(seconds=5)
RETRY_SECONDS = 0.1
# A machine that died does not close its connections: the database has to detect it.
KEEPALIVES = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
# A suspended process must not keep its locks.
IDLE = "-c idle_in_transaction_session_timeout=60s"


class Journal:
    """Lends connections that commit each statement, and calls functions over them.

    There is no pool in the background: after an outage the next call connects without delay.
    """

    def __init__(
        self,
        dsn: str,
        schema: str,
        *,
        connections: int = 1,
        patience: timedelta = PATIENCE_DEFAULT,
        is_pooled: bool = False,
    ) -> None:
        self.dsn = dsn
        self._schema = schema
        self._patience = patience.total_seconds()
        name = f"postroad {schema}"
        self._parameters = {
            **parameters(dsn, application_name=name, is_pooled=is_pooled, autocommit=True),
            "connect_timeout": 5,
        }
        if not is_pooled:
            # An acknowledged call is on disk, whatever the cluster's configuration.
            self._parameters["options"] = f"-c synchronous_commit=on {KEEPALIVES} {IDLE}"
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(connections)

    async def close(self) -> None:
        """Close the idle connections; a later call opens one again."""
        while self._idle:
            await self._idle.pop().close()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; a broken, demoted or unfinished one is closed afterwards."""
        async with self._slots:
            if self._idle:
                connection = self._idle.pop()
            else:
                connection = await AsyncConnection.connect(self.dsn, **self._parameters)
            try:
                yield connection
            except psycopg.errors.ReadOnlySqlTransaction:
                # A demoted server leaves the connection intact, but it leads to the wrong server.
                await connection.close()
                raise
            finally:
                is_usable = not connection.closed and not connection.broken
                if is_usable and connection.info.transaction_status == TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def call(self, function: str, *parameters: Any) -> Any:
        """Call a function of the schema and return its value."""
        return await self._call(calls.call, function, *parameters)

    async def change(self, function: str, *parameters: Any) -> Any:
        """Call a function whose events belong to the current trace; return its value."""
        return await self._call(calls.change, function, *parameters)

    async def select(self, function: str, *parameters: Any) -> list[Row]:
        """Call a function and return its rows."""
        return await self._call(calls.select, function, *parameters)

    async def rows(self, text: LiteralString, *parameters: Any) -> list[Row]:
        """Return the rows of a query."""
        return await self.repeat(lambda connection: calls.rows(connection, text, *parameters))

    async def _call(self, call: Callable[..., Awaitable[T]], function: str, *parameters: Any) -> T:
        name = function if "." in function else f"{self._schema}.{function}"
        return await self.repeat(lambda connection: call(connection, name, *parameters))

    def stop_repeating(self) -> None:
        """Let calls fail at their first error from now on, because the process is to end."""
        self._patience = 0.0

    async def repeat(self, do: Callable[[Connection], Awaitable[T]]) -> T:
        """Call an idempotent function with a connection; it is repeated after a lost connection."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                async with self.connection() as connection:
                    return await do(connection)
            except psycopg.errors.QueryCanceled:
                # The server cancels a statement on purpose.
                raise
            except CONNECTION_LOST as failure:
                if loop.time() - begun >= self._patience:
                    raise
                logger.info("journal_call_repeated", extra={"reason": str(failure).strip()})
                await asyncio.sleep(RETRY_SECONDS)
