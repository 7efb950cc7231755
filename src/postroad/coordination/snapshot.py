"""A Reader that comes later: a copy of the Writer's tables, and where the tail begins.

The copy is one repeatable-read transaction at the Writer and one transaction at the Reader: either
the Reader shows all of it or none. The same snapshot says which events it holds, so that the tail
neither leaves one out nor applies one twice. Interrupted, it begins again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from psycopg import AsyncConnection, IsolationLevel, sql

from postroad.coordination.calls import said_async
from postroad.postgres.connections import connect_async

__all__ = ["take_snapshot"]

logger = logging.getLogger(__name__)


async def take_snapshot(
    writer: str, reader: str, *, progress: Callable[[str, int], None] | None = None
) -> dict[str, int]:
    """Copy every entity that both have; return the rows by entity.

    `progress` is told the entity and the bytes copied so far. Raises EntityNotFound,
    ColumnMissing, DatabaseUnavailable.
    """
    copied: dict[str, int] = {}
    source = await connect_async(writer, application_name="postroad coordination snapshot")
    target = await connect_async(reader, application_name="postroad coordination snapshot")
    try:
        async with said_async(), source, target:
            await source.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            await source.set_read_only(True)
            snapshot = await _fact(source, "select coordination.snapshot()")
            kept = await _fact(
                target,
                "select coalesce(json_object_agg(name, format('%I.%I', schema_name, table_name)),"
                " '{}') from coordination.entity where role = 'replica'",
            )
            snapshot["columns"] = {
                name: columns for name, columns in snapshot["columns"].items() if name in kept
            }
            for entity in snapshot["columns"]:
                copied[entity] = await _copy(source, target, snapshot, entity, progress)
            await target.execute(
                "select coordination.close_snapshot(%s::jsonb)", (json.dumps(snapshot),)
            )
    finally:
        await source.close()
        await target.close()
    logger.info("snapshot_taken", extra={"rows": copied, "position": snapshot["position"]})
    return copied


async def _copy(
    source: AsyncConnection[Any],
    target: AsyncConnection[Any],
    snapshot: dict[str, Any],
    entity: str,
    progress: Callable[[str, int], None] | None,
) -> int:
    columns = await _fact(
        target, "select coordination.open_snapshot(%s, %s)", entity, snapshot["columns"][entity]
    )
    named = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    # The table's name was quoted by the database that has it.
    reading = sql.SQL("copy (select {} from {}) to stdout").format(
        named, sql.SQL(snapshot["tables"][entity])
    )
    writing = sql.SQL("copy pg_temp.{} ({}) from stdin").format(
        sql.Identifier(f"snapshot_{entity}"), named
    )
    done = 0
    async with source.cursor().copy(reading) as outgoing:
        incoming_cursor = target.cursor()
        async with incoming_cursor.copy(writing) as incoming:
            async for block in outgoing:
                await incoming.write(block)
                done += len(block)
                if progress is not None:
                    progress(entity, done)
    return max(0, incoming_cursor.rowcount)


async def _fact(connection: AsyncConnection[Any], query: str, *parameters: object) -> Any:
    cursor = await connection.execute(query.encode(), parameters or None)
    row = await cursor.fetchone()
    return row[0] if row else None
