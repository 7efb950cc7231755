"""The journal: schema exchange, called by functions only, each call one durable transaction.

A connection that breaks leaves its COMMIT in doubt. Every function may be called again with the
same arguments and then finds what it did, so the call is made again on another connection, for a
while; after that the request fails with 503 and nothing was acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from postroad.exchange.errors import translate

__all__ = ["Journal"]

logger = logging.getLogger(__name__)

PATIENCE_DEFAULT = timedelta(seconds=5)
PAUSE_SECONDS = 0.1
# What a second try on another connection may mend.
_PASSING = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)


class Journal:
    """Calls of schema exchange over a pool of connections that commit each statement."""

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
            "application_name": "postroad exchange",
            "autocommit": True,
            "connect_timeout": 5,
            # Whatever the cluster was set up for, what is answered here is on the disk.
            "options": "-c synchronous_commit=on",
        }
        if is_pooled:
            parameters["prepare_threshold"] = None
            del parameters["options"]
        self._pool = AsyncConnectionPool(
            dsn,
            kwargs=parameters,
            min_size=1,
            max_size=connections,
            timeout=self._patience,
            reconnect_timeout=0,
            open=False,
            name="exchange",
        )

    async def open(self) -> None:
        """Open the pool; it connects in the background."""
        await self._pool.open()

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()

    async def call(self, text: LiteralString, *parameters: Any) -> Any:
        """Call a function that returns one value."""
        rows = await self._run(text, parameters, None)
        return rows[0][0] if rows else None

    async def rows(self, text: LiteralString, *parameters: Any) -> list[dict[str, Any]]:
        """Call a function that returns rows."""
        found: list[dict[str, Any]] = await self._run(text, parameters, dict_row)
        return found

    def connection(self) -> Any:
        """Lend a connection for a transaction of several statements (`async with`)."""
        return self._pool.connection()

    async def _run(self, text: LiteralString, parameters: tuple[Any, ...], shape: Any) -> Any:
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                async with self._pool.connection() as connection:
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
