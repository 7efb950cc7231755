"""The bus in the transaction of a session or connection of SQLAlchemy 2, on psycopg or asyncpg."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.pq import DiagnosticField as Field
from psycopg.sql import quote
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from postroad.bus import AsyncBus, Bus
from postroad.bus.call import Call
from postroad.bus.errors import translate
from postroad.bus.hstore import Untyped
from postroad.bus.runner import AsyncRunner
from postroad.integrations import checked

T = TypeVar("T")
# The attributes of asyncpg's errors by psycopg's name.
_DIAGNOSIS = {
    Field.SQLSTATE: "sqlstate",
    Field.MESSAGE_PRIMARY: "message",
    Field.MESSAGE_DETAIL: "detail",
    Field.MESSAGE_HINT: "hint",
    Field.INTERNAL_QUERY: "internal_query",
    Field.SOURCE_FUNCTION: "server_source_function",
}


def bus(source: Session | scoped_session[Any] | Connection) -> Bus:
    """Return a bus for the current transaction; begins one if there is none.

    Raises InvalidArgument if the driver is not psycopg.
    """
    connection = source if isinstance(source, Connection) else source.connection()
    if not connection.in_transaction():
        connection.begin()
    return Bus(checked(connection.connection.driver_connection, psycopg.Connection))


async def async_bus(
    source: AsyncSession | async_scoped_session[Any] | AsyncConnection,
) -> AsyncBus:
    """Return a bus for the current transaction; begins one if there is none.

    On asyncpg the engine's `json_deserializer` decodes jsonb, and a message that it cannot decode
    raises its error. Raises InvalidArgument if the driver is neither psycopg nor asyncpg.
    """
    connection = source if isinstance(source, AsyncConnection) else await source.connection()
    if not connection.in_transaction():
        await connection.begin()
    if connection.dialect.driver == "asyncpg":
        return _AsyncpgBus(connection)  # type: ignore[arg-type]  # its runner takes it
    raw = await connection.get_raw_connection()
    return AsyncBus(checked(raw.driver_connection, psycopg.AsyncConnection))


class _AsyncpgRunner(AsyncRunner):
    """Runs calls on a connection of SQLAlchemy that uses asyncpg."""

    def __init__(self, source: Any, **options: bool) -> None:
        super().__init__(source, **options)
        self._connection, self._pool, self._notifies = source, None, False

    async def _run_once(self, call: Call[T]) -> T:
        connection: Any = self._connection
        if call.parts:
            async with connection.begin_nested():
                return call.read([await self._run_once(part) for part in call.parts])
        given, bound = iter(call.parameters), list[object]()

        def place(_: object) -> str:
            value = next(given)
            if isinstance(value, Untyped):
                return quote(value)
            bound.append(value)
            return f"${len(bound)}"

        try:
            found = await connection.exec_driver_sql(re.sub("%[sb]", place, call.text), (*bound,))
        except DBAPIError as error:
            cause = _as_psycopg(error.orig and error.orig.__cause__)
            translated = translate(cause, queue=call.queue, consumer=call.consumer)
            if translated is None:
                raise
            raise translated from error
        return call.read([tuple(row) for row in found] if found.returns_rows else [])


def _as_psycopg(failure: BaseException | None) -> psycopg.Error:
    texts = {field: getattr(failure, name, None) for field, name in _DIAGNOSIS.items()}
    info: dict[int, bytes | None] = dict.fromkeys(Field)
    info |= {field: str(text).encode() for field, text in texts.items() if text is not None}
    with suppress(KeyError):
        return psycopg.errors.lookup(str(texts[Field.SQLSTATE]))(str(failure), info=info)
    return psycopg.DatabaseError(str(failure), info=info)


class _AsyncpgBus(AsyncBus):
    _runner_type = _AsyncpgRunner
