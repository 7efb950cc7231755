"""Calls of SQL functions by name, with positional arguments.

A function of a schema has one signature, so its name and the number of arguments are the statement.
A call runs in the transaction of the connection; nothing here commits. An error with the SQLSTATE
of a component is translated to its class. Blocking code runs the calls with `finish`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Cursor
from psycopg.rows import dict_row, tuple_row

from postroad import trace
from postroad.errors import PostroadError
from postroad.postgres.errors import raised_by

Row = dict[str, Any]
# A connection of any row type: the argument of operations and status functions.
Connection: TypeAlias = AsyncConnection[Any]
AnyConnection: TypeAlias = psycopg.Connection[Any] | AsyncConnection[Any]


class BlockingCursor(Cursor[Any]):
    """A cursor whose methods block, but are awaited like those of an `AsyncCursor`."""

    async def execute(self, *arguments: Any) -> Any:  # type: ignore[override]
        """Execute a statement."""
        return super().execute(*arguments)

    async def fetchall(self) -> Any:  # type: ignore[override]
        """Read all rows."""
        return super().fetchall()


def open_cursor(connection: AnyConnection, row_factory: Any) -> AsyncCursor[Any]:
    """Open a cursor with methods that are awaited, on a connection of either kind."""
    kind: Any = BlockingCursor if isinstance(connection, psycopg.Connection) else AsyncCursor
    cursor: AsyncCursor[Any] = kind(connection, row_factory=row_factory)
    return cursor


@cache
def invocation(function: str, count: int) -> str:
    """Return the text that calls a function with this number of parameters."""
    return f"{function}({', '.join(['%s'] * count)})"


async def value(connection: AnyConnection, text: str, *parameters: Any) -> Any:
    """Run a statement and return the first column of its first row, None without a row."""
    rows = await run(open_cursor(connection, tuple_row), text, *parameters)
    return rows[0][0] if rows else None


async def call(connection: AnyConnection, function: str, *parameters: Any) -> Any:
    """Call a function and return its value, the first column of its first row."""
    return await value(connection, f"select {invocation(function, len(parameters))}", *parameters)


async def change(connection: Connection, function: str, *parameters: Any) -> Any:
    """Call a function whose events belong to the current trace; return its value."""
    text = f"select {invocation(function, len(parameters))}{trace.FOLLOWED}"
    return await value(connection, text, *parameters, trace.line())


async def select(connection: Connection, function: str, *parameters: Any) -> list[Row]:
    """Call a function and return its rows by the names of their columns."""
    text = f"select * from {invocation(function, len(parameters))}"  # noqa: S608 - own names
    return await rows(connection, text, *parameters)


async def rows(connection: AnyConnection, text: str, *parameters: Any) -> list[Row]:
    """Run a statement and return its rows by the names of their columns."""
    return await run(open_cursor(connection, dict_row), text, *parameters)


async def run(cursor: AsyncCursor[Any], text: str, *parameters: Any) -> list[Any]:
    """Run a statement and return its rows. Raises the error of the component."""
    try:
        await cursor.execute(text.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []
    except psycopg.Error as failure:
        raise (raised_by(PostroadError, failure) or failure) from failure
