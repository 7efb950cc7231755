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
from psycopg.rows import dict_row

from postroad import trace
from postroad.errors import PostroadError
from postroad.postgres.calls import Row, invocation
from postroad.postgres.connections import network_parameters
from postroad.postgres.errors import raised_by

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_DEFAULT = timedelta(seconds=5)
RETRY_SECONDS = 0.1
# The server cancels a statement on purpose; every other failure of the connection may pass.
_TRANSIENT = (psycopg.OperationalError, psycopg.InterfaceError)


class Journal:
    """Lends connections that commit each statement, and calls functions over them.

    `errors` is the family of errors that the schema raises by their SQLSTATE. There is no pool in
    the background: after an outage the next call connects without delay.
    """

    def __init__(
        self,
        dsn: str,
        schema: str,
        errors: type[PostroadError],
        *,
        connections: int = 1,
        patience: timedelta = PATIENCE_DEFAULT,
        is_pooled: bool = False,
    ) -> None:
        self.dsn = dsn
        self._schema = schema
        self._errors = errors
        self._patience = patience.total_seconds()
        self._parameters: dict[str, Any] = {
            **network_parameters(dsn),
            "application_name": f"postroad {schema}",
            "autocommit": True,
            "connect_timeout": 5,
        }
        if is_pooled:
            self._parameters["prepare_threshold"] = None
        else:
            # An acknowledged call is on the disk, however the cluster is configured.
            self._parameters["options"] = "-c synchronous_commit=on"
        self._idle: list[AsyncConnection[Any]] = []
        self._slots = asyncio.Semaphore(connections)

    async def open(self) -> None:
        """Connect once, so that a wrong address fails at the start."""
        async with self.connection():
            pass

    async def close(self) -> None:
        """Close the idle connections; a later call opens one again."""
        while self._idle:
            await self._idle.pop().close()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend a connection; one that is broken or inside a transaction is closed afterwards."""
        async with self._slots:
            if self._idle:
                connection = self._idle.pop()
            else:
                connection = await AsyncConnection.connect(self.dsn, **self._parameters)
            try:
                yield connection
            finally:
                is_usable = not connection.closed and not connection.broken
                if is_usable and connection.info.transaction_status == TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def call(self, function: str, *parameters: Any) -> Any:
        """Call a function of the schema and return its value."""
        return await self._value(f"select {self._invocation(function, parameters)}", *parameters)

    async def change(self, function: str, *parameters: Any) -> Any:
        """Call a function whose events belong to the current trace; return its value."""
        text = f"select {self._invocation(function, parameters)}{trace.FOLLOWED}"
        return await self._value(text, *parameters, trace.line())

    async def select(self, function: str, *parameters: Any) -> list[Row]:
        """Call a function and return its rows."""
        text = f"select * from {self._invocation(function, parameters)}"  # noqa: S608 - own names
        return await self._run(text, parameters, is_named=True)

    async def rows(self, text: LiteralString, *parameters: Any) -> list[Row]:
        """Return the rows of a query."""
        return await self._run(text, parameters, is_named=True)

    def _invocation(self, function: str, parameters: tuple[Any, ...]) -> str:
        name = function if "." in function else f"{self._schema}.{function}"
        return invocation(name, len(parameters))

    async def _value(self, text: str, *parameters: Any) -> Any:
        rows = await self._run(text, parameters, is_named=False)
        return rows[0][0] if rows else None

    async def _run(self, text: str, parameters: tuple[Any, ...], *, is_named: bool) -> list[Any]:
        async def call(connection: AsyncConnection[Any]) -> list[Any]:
            cursor: Any = connection.cursor()
            if is_named:
                cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(text.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

        return await self.repeat(call)

    async def repeat(self, do: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Call a function with a connection; repeated as a call is, so it must be idempotent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while True:
            try:
                async with self.connection() as connection:
                    return await do(connection)
            except psycopg.errors.QueryCanceled:
                raise
            except _TRANSIENT as failure:
                if loop.time() >= deadline:
                    raise
                logger.info("journal_call_repeated", extra={"reason": str(failure).strip()})
                await asyncio.sleep(RETRY_SECONDS)
            except psycopg.Error as failure:
                raise (raised_by(self._errors, failure) or failure) from failure
