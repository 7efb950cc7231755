"""The bus in the transaction of a session or connection of SQLAlchemy 2."""

from __future__ import annotations

from typing import Any

import psycopg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from postroad.bus import AsyncBus, Bus
from postroad.integrations import checked


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

    Raises InvalidArgument if the driver is not psycopg.
    """
    connection = source if isinstance(source, AsyncConnection) else await source.connection()
    if not connection.in_transaction():
        await connection.begin()
    raw = await connection.get_raw_connection()
    return AsyncBus(checked(raw.driver_connection, psycopg.AsyncConnection))
