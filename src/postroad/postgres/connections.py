"""Connections and pools, blocking and async, all opened the same way.

A pool tests each connection before it is used, so that a restart of PostgreSQL costs one reconnect
and not one error per stale connection. `is_pooled` is for a pooler in transaction mode, where
prepared statements belong to another session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack

import psycopg
from psycopg import AsyncConnection, Connection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool

from postroad.errors import first_line
from postroad.postgres.errors import DatabaseUnavailable

P = ParamSpec("P")
T = TypeVar("T")
# A pool whose connections may have any row type.
Pool: TypeAlias = AsyncConnectionPool[Any]

CONNECT_TIMEOUT_DEFAULT = timedelta(seconds=10)
# A pool doubles the pause between its attempts for this long; then the next caller makes it
# connect without a pause, so that it recovers as soon as the server does.
RECONNECT_TIMEOUT = timedelta(seconds=5)
POOL_MAX_SIZE_DEFAULT = 10

# A server that vanished without closing the connection is detected by a waiting call after ten
# seconds and by an idle connection after half a minute, instead of after two hours.
_NETWORK: dict[str, Any] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # Any text of a UTF-8 database can be read, whatever the environment sets.
    "client_encoding": "utf8",
}


class Options(TypedDict, total=False):
    """Options of a connection; `is_pooled` behind a pooler in transaction mode."""

    application_name: str
    connect_timeout: timedelta
    is_pooled: bool
    autocommit: bool


def parameters(dsn: str, **options: Unpack[Options]) -> dict[str, Any]:
    """Return the parameters of a connection for the driver, without what the DSN sets itself."""
    named = conninfo_to_dict(dsn)
    found = {
        **{name: value for name, value in _NETWORK.items() if name not in named},
        "application_name": options.get("application_name", "postroad"),
        "autocommit": options.get("autocommit", False),
    }
    if "connect_timeout" in found:
        timeout = options.get("connect_timeout", CONNECT_TIMEOUT_DEFAULT)
        # libpq uses whole seconds and treats 1 as 2.
        found["connect_timeout"] = max(2, round(timeout.total_seconds()))
    if options.get("is_pooled"):
        found["prepare_threshold"] = None
    return found


def _unavailable(dsn: str, failure: Exception) -> DatabaseUnavailable:
    host = conninfo_to_dict(dsn).get("host", "the local socket")
    return DatabaseUnavailable(
        f"the database at {host} cannot be reached: {first_line(failure)}",
        hint="check that it runs and that POSTROAD_DATABASE_URL names it",
    )


def connect(dsn: str, **options: Unpack[Options]) -> Connection:
    """Open one connection. Raises DatabaseUnavailable."""
    try:
        return psycopg.connect(dsn, **parameters(dsn, **options))
    except psycopg.OperationalError as failure:
        raise _unavailable(dsn, failure) from failure


async def connect_async(dsn: str, **options: Unpack[Options]) -> AsyncConnection:
    """Open one connection. Raises DatabaseUnavailable."""
    try:
        return await AsyncConnection.connect(dsn, **parameters(dsn, **options))
    except psycopg.OperationalError as failure:
        raise _unavailable(dsn, failure) from failure


def create_database(dsn: str, name: str) -> None:
    """Create a database on the server of a DSN unless it exists."""
    with connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as connection:
        found = connection.execute("select from pg_database where datname = %s", (name,))
        if found.rowcount == 0:
            statement = sql.SQL("create database {} template template0")
            # Another process may have created it in the meantime.
            with suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                connection.execute(statement.format(sql.Identifier(name)))


async def open_async_pool(
    dsn: str, *, max_size: int = POOL_MAX_SIZE_DEFAULT, **options: Unpack[Options]
) -> AsyncConnectionPool:
    """Open a pool; it connects in the background. The caller closes it (or uses `async with`)."""
    given = parameters(dsn, **options)
    pool = AsyncConnectionPool(
        dsn,
        kwargs=given,
        min_size=1,
        max_size=max_size,
        check=AsyncConnectionPool.check_connection,
        timeout=options.get("connect_timeout", CONNECT_TIMEOUT_DEFAULT).total_seconds(),
        reconnect_timeout=RECONNECT_TIMEOUT.total_seconds(),
        name=given["application_name"],
        open=False,
    )
    await pool.open()
    return pool


def run_blocking(
    dsn: str,
    operation: Callable[Concatenate[AsyncConnection[Any], P], Coroutine[Any, Any, T]],
    *arguments: P.args,
    **named: P.kwargs,
) -> T:
    """Await an operation from blocking code and commit; works even if an event loop is running.

    For scripts, tests and code that starts processes; services await.
    """

    async def run() -> T:
        async with await connect_async(dsn) as connection:
            return await operation(connection, *arguments, **named)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()
