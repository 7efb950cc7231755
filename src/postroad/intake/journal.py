"""The journal: every step of a file is one call of a function of schema intake, durable on return.

One connection per process, opened again after PostgreSQL was away. A call whose answer was lost is
made again: every function of the schema bears that, because it asks for the lease's token or does
nothing the second time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from postroad import trace
from postroad.clock import SYSTEM_CLOCK, Clock
from postroad.intake.errors import translate
from postroad.postgres.connections import network_parameters

__all__ = ["Journal", "Row"]

Row = dict[str, Any]

PATIENCE_DEFAULT = timedelta(seconds=60)
PAUSE_SECONDS = 0.25


class Journal:
    """Calls of schema intake over one connection that is opened again when it broke."""

    def __init__(
        self, dsn: str, *, patience: timedelta = PATIENCE_DEFAULT, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._dsn = dsn
        self._patience = patience
        self._clock = clock
        self._connection: AsyncConnection[Row] | None = None
        # One statement at a time: the critical section is the connection.
        self._lock = asyncio.Lock()

    async def rows(self, statement: str, *parameters: object) -> list[Row]:
        """Run one statement in a transaction of its own and return its rows."""
        give_up_at = self._clock.monotonic() + self._patience.total_seconds()
        async with self._lock:
            while True:
                try:
                    connection = await self._connected()
                    cursor = await connection.execute(statement.encode(), parameters)
                    return await cursor.fetchall() if cursor.description else []
                except psycopg.OperationalError:
                    await self._disconnect()
                    if self._clock.monotonic() > give_up_at:
                        raise
                    await asyncio.sleep(PAUSE_SECONDS)
                except psycopg.Error as failure:
                    known = translate(failure)
                    if known is None:
                        raise
                    raise known from failure

    async def call(self, function: str, *parameters: object) -> Any:
        """Call a function that returns one value."""
        places = ", ".join(["%s"] * len(parameters))
        statement = f"select intake.{function}({places}) as value"
        if line := trace.line():
            statement, parameters = statement + trace.FOLLOWED, (*parameters, line)
        rows = await self.rows(statement, *parameters)
        return rows[0]["value"] if rows else None

    async def select(self, function: str, *parameters: object) -> list[Row]:
        """Call a function that returns rows."""
        places = ", ".join(["%s"] * len(parameters))
        statement = f"select * from intake.{function}({places})"  # noqa: S608 - names are ours
        return await self.rows(statement, *parameters)

    async def close(self) -> None:
        """Close the connection; the next call opens one again."""
        async with self._lock:
            await self._disconnect()

    async def using(self, work: Callable[[AsyncConnection[Row]], Awaitable[None]]) -> None:
        """Let a caller's function use the connection; its statements are committed one by one."""
        async with self._lock:
            await work(await self._connected())

    async def _connected(self) -> AsyncConnection[Row]:
        if self._connection is None or self._connection.closed:
            self._connection = await AsyncConnection.connect(
                self._dsn,
                row_factory=dict_row,
                **network_parameters(self._dsn)
                | {"application_name": "postroad intake", "autocommit": True, "connect_timeout": 5},
            )
        return self._connection

    async def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                await self._connection.close()
            self._connection = None
