"""Facts about the database: whether it answers, when the bus was maintained."""

from __future__ import annotations

from typing import Any

from psycopg_pool import AsyncConnectionPool


class DatabaseFacts:
    """Reads the server's own views."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def is_there(self) -> bool:
        """Ask the database for an answer. Raises what the driver raises when there is none."""
        async with self._pool.connection() as connection:
            await connection.execute("select 1")
        return True

    async def maintenance_age_seconds(self) -> float:
        """Return the seconds since the bus was last maintained. Read-only."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "select extract(epoch from mbus.now()) - last_value from mbus.attended"
            )
            row = await cursor.fetchone()
        return float(row[0]) if row else 0.0
