"""The journal: schema exchange, called by functions only, each call one durable transaction.

A connection that breaks leaves its COMMIT in doubt. Every function may be called again with the
same arguments and then finds what it did, so the call is made again on another connection, for a
while; after that the request fails with 503 and nothing was acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from postroad import trace
from postroad.exchange.errors import ExchangeError, TakenOver, translate
from postroad.postgres.connections import network_parameters

__all__ = ["Journal", "was_refused"]

logger = logging.getLogger(__name__)

PATIENCE_DEFAULT = timedelta(seconds=5)
PAUSE_SECONDS = 0.1
# What a second try on another connection may mend.
_PASSING = (psycopg.OperationalError, psycopg.InterfaceError)


def was_refused(failure: BaseException) -> bool:
    """Return whether a failed call certainly committed nothing.

    TakenOver may answer the repetition of a call whose first COMMIT was done and not heard of.
    """
    return isinstance(failure, ExchangeError) and not isinstance(failure, TakenOver)


class Journal:
    """Calls of schema exchange over a few connections that commit each statement."""

    def __init__(
        self,
        dsn: str,
        *,
        connections: int = 8,
        patience: timedelta = PATIENCE_DEFAULT,
        is_pooled: bool = False,
    ) -> None:
        self.dsn = dsn
        self._patience = patience.total_seconds()
        parameters: dict[str, Any] = {
            **network_parameters(dsn),
            "application_name": "postroad exchange",
            "autocommit": True,
            "connect_timeout": 5,
            # Whatever the cluster was set up for, what is answered here is on the disk.
            "options": "-c synchronous_commit=on",
        }
        if is_pooled:
            parameters["prepare_threshold"] = None
            del parameters["options"]
        self._parameters = parameters
        self._idle: list[AsyncConnection[Any]] = []
        self._turns = asyncio.Semaphore(connections)

    async def open(self) -> None:
        """Connect once, so that a wrong address is told at the start."""
        async with self.connection():
            pass

    async def close(self) -> None:
        """Close what is idle; who still holds a connection closes it by giving it back."""
        while self._idle:
            await self._idle.pop().close()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend a connection; one that is broken or inside a transaction is not lent again.

        No pool in the background: after an outage the next call connects, at once.
        """
        async with self._turns:
            if self._idle:
                connection = self._idle.pop()
            else:
                connection = await AsyncConnection.connect(self.dsn, **self._parameters)
            try:
                yield connection
            finally:
                is_fit = not connection.closed and not connection.broken
                if is_fit and connection.info.transaction_status == TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def call(self, text: LiteralString, *parameters: Any) -> Any:
        """Call a function that returns one value."""
        rows = await self._run(text, parameters, None)
        return rows[0][0] if rows else None

    async def change(self, text: LiteralString, *parameters: Any) -> Any:
        """Call a function whose events belong to the trace of this request."""
        return await self.call(text + trace.FOLLOWED, *parameters, trace.line())

    async def rows(self, text: LiteralString, *parameters: Any) -> list[dict[str, Any]]:
        """Call a function that returns rows."""
        found: list[dict[str, Any]] = await self._run(text, parameters, dict_row)
        return found

    async def _run(self, text: LiteralString, parameters: tuple[Any, ...], shape: Any) -> Any:
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                async with self.connection() as connection:
                    return await _execute(connection, text, parameters, shape)
            except psycopg.errors.QueryCanceled:
                raise
            except _PASSING as failure:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                logger.info("journal_call_repeated", extra={"reason": str(failure).strip()})
                await asyncio.sleep(PAUSE_SECONDS)
            except psycopg.Error as failure:
                own = translate(failure)
                if own is not None:
                    raise own from failure
                raise


async def _execute(
    connection: AsyncConnection[Any], text: LiteralString, parameters: tuple[Any, ...], shape: Any
) -> Any:
    async with connection.cursor(row_factory=shape) if shape else connection.cursor() as cursor:
        await cursor.execute(text, parameters)
        return await cursor.fetchall() if cursor.description else []
