"""Facts about the database: whether it is available, when bus maintenance last ran."""

from __future__ import annotations

import asyncio

from postroad.postgres.connections import Pool

# A health check is repeated, so its timeout is shorter than that of a request.
PROBE_TIMEOUT_SECONDS = 2.0


class DatabaseFacts:
    """Reads the server's own views."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def is_there(self) -> bool:
        """Query the database. Raises TimeoutError after two seconds, or the driver's error."""
        # In its own task, because cancelling a query on a silent connection takes seconds.
        probe = asyncio.create_task(self._probe())
        done, _ = await asyncio.wait({probe}, timeout=PROBE_TIMEOUT_SECONDS)
        if not done:
            probe.cancel()
            raise TimeoutError("the database does not answer")
        return probe.result()

    async def _probe(self) -> bool:
        async with self._pool.connection() as connection:
            await connection.execute("select 1")
        return True

    async def maintenance_age_seconds(self) -> float:
        """Return the seconds since bus maintenance last ran. Read-only."""
        text = "select extract(epoch from mbus.now()) - last_value from mbus.attended"
        async with self._pool.connection() as connection:
            row = await (await connection.execute(text)).fetchone()
        return float(row[0]) if row else 0.0
