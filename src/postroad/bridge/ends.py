"""Opening and closing the two ends of a bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection

from postroad.bridge.errors import translate
from postroad.postgres.connections import connect_async
from postroad.settings.values import masked_database_url

__all__ = ["close_inlet", "close_outlet", "open_inlet", "open_outlet", "speaking", "target_label"]


@asynccontextmanager
async def speaking(dsn: str) -> AsyncIterator[AsyncConnection[Any]]:
    """Give a connection whose transaction commits at the end; raise the room's errors."""
    connection = await connect_async(dsn, application_name="postroad bridge")
    try:
        async with connection:
            yield connection
    except psycopg.Error as error:
        translated = translate(error)
        if translated is None:
            raise
        raise translated from error


def target_label(address: str) -> str:
    """Name the other end for people: without its password."""
    return address if address.startswith("rabbitmq:") else masked_database_url(address)


async def open_outlet(
    source: str,
    name: str,
    queue: str,
    target: str,
    *,
    selector: str | None = None,
    consumer: str | None = None,
) -> str:
    """Open the end at the source; return the consumer that is emptied."""
    async with speaking(source) as connection:
        cursor = await connection.execute(
            "select bridge.open_outlet(%s, %s, %s, %s, %s)",
            (name, queue, target_label(target), selector, consumer),
        )
        row = await cursor.fetchone()
    return str(row[0]) if row else ""


async def open_inlet(source: str, target: str, name: str, queue: str, queue_at_target: str) -> None:
    """Open the end at the target; the queue there is made like the one at the source."""
    async with speaking(source) as connection:
        cursor = await connection.execute(
            "select h.database || '@' || h.node, bridge._payload(%s) from bridge.hello() h",
            (queue,),
        )
        row = await cursor.fetchone()
    here, payload = row or ("", None)
    async with speaking(target) as connection:
        await connection.execute(
            "select bridge.open_inlet(%s, %s, %s, %s)", (name, here, queue_at_target, payload)
        )


async def close_outlet(source: str, name: str) -> bool:
    """Close the end at the source, and drop its consumer with what it has not sent."""
    async with speaking(source) as connection:
        cursor = await connection.execute("select bridge.close_outlet(%s)", (name,))
        row = await cursor.fetchone()
    return bool(row and row[0])


async def close_inlet(target: str, name: str) -> bool:
    """Close the end at the target with its part of the ledger."""
    async with speaking(target) as connection:
        cursor = await connection.execute(
            "select bool_or(bridge.close_inlet(i.name, i.source)) from bridge.inlets i"
            " where i.name = %s",
            (name,),
        )
        row = await cursor.fetchone()
    return bool(row and row[0])
