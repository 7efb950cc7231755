"""What the database says of itself: who is connected, how large it is, whether it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import class_row
from psycopg_pool import AsyncConnectionPool


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions of one program in one state."""

    application: str
    state: str
    count: int
    oldest_age: Any


class DatabaseFacts:
    """Reads the server's own views."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def is_there(self) -> bool:
        """Ask the database for an answer. Raises what the driver raises when there is none."""
        async with self._pool.connection() as connection:
            await connection.execute("select 1")
        return True

    async def sessions(self) -> Sequence[Sessions]:
        """Count who is connected to this database. Read-only."""
        async with (
            self._pool.connection() as connection,
            connection.cursor(row_factory=class_row(Sessions)) as cursor,
        ):
            await cursor.execute(
                "select coalesce(nullif(application_name, ''), '-') as application,"
                " coalesce(state, '-') as state, count(*) as count,"
                " max(clock_timestamp() - xact_start) as oldest_age"
                " from pg_stat_activity where datname = current_database()"
                " and backend_type = 'client backend' group by 1, 2 order by 1, 2"
            )
            found: Sequence[Sessions] = await cursor.fetchall()
            return found

    async def maintenance_age_seconds(self) -> float:
        """Return for how long nobody has maintained the bus. Read-only."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "select extract(epoch from mbus.now()) - last_value from mbus.attended"
            )
            row = await cursor.fetchone()
        return float(row[0]) if row else 0.0
