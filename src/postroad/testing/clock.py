"""A clock that tests set: shifts what a schema's own `now()` returns, as its owner."""

from __future__ import annotations

from datetime import datetime, timedelta

import psycopg
from psycopg import sql


class DatabaseClock:
    """Moves the time of one test database forwards or backwards.

    Every function of the schema calls `<schema>.now()`. This clock replaces that function as its
    owner and commits, so that all sessions of the database see it.
    """

    def __init__(self, dsn: str, schema: str = "mbus") -> None:
        self._dsn = dsn
        self._schema = schema
        self.shift = timedelta(0)
        self._stopped_at: datetime | None = None

    def advance(self, by: timedelta) -> None:
        """Move the time forward."""
        if self._stopped_at is not None:
            self._stopped_at += by
        self._replace(self.shift + by)

    def stop(self) -> None:
        """Stop the time, so that only `advance` makes anything due."""
        self._stopped_at = self.now()
        self._replace(self.shift)

    def reset(self) -> None:
        """Return to the real time."""
        self._stopped_at = None
        self._replace(timedelta(0))

    def now(self) -> datetime:
        """Return the database's time."""
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute(
                sql.SQL("select {}.now()").format(sql.Identifier(self._schema))
            ).fetchone()
        assert row is not None  # noqa: S101 - a function call always gives one row
        moment: datetime = row[0]
        return moment

    def _replace(self, shift: timedelta) -> None:
        body = f"select pg_catalog.clock_timestamp() + interval '{shift.total_seconds():f} s'"
        if self._stopped_at is not None:
            body = f"select '{self._stopped_at.isoformat()}'::timestamptz"
        statement = sql.SQL(
            "create or replace function {}.now() returns timestamptz"
            " language sql volatile parallel safe as {}"
        ).format(sql.Identifier(self._schema), sql.Literal(body))
        with psycopg.connect(self._dsn) as connection:
            connection.execute(statement)
        self.shift = shift
