"""The initial copy of a new Reader: the Writer's tables, and the position where its events begin.

The copy is one repeatable-read transaction at the Writer and one transaction at the Reader: either
the Reader shows all of it or none. The same snapshot lists the events that it contains, so that
none is left out or applied twice. After an interruption the copy starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from psycopg import IsolationLevel, sql
from psycopg.types.json import Jsonb

from postroad.postgres.calls import Connection, call, value
from postroad.postgres.connections import connect_async

logger = logging.getLogger(__name__)


async def take_snapshot(
    writer: str, reader: str, *, progress: Callable[[str, int], None] | None = None
) -> dict[str, int]:
    """Copy every entity that both have; return the rows by entity.

    `progress` is called with the entity and the bytes copied so far. Raises EntityNotFound,
    ColumnMissing, DatabaseUnavailable.
    """
    copied: dict[str, int] = {}
    name = "postroad coordination snapshot"
    async with (
        await connect_async(writer, application_name=name) as source,
        await connect_async(reader, application_name=name) as target,
    ):
        await source.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        await source.set_read_only(True)
        snapshot = await call(source, "coordination.snapshot")
        names = "select array(select name from coordination.entity where role = 'replica')"
        kept = await value(target, names)
        snapshot["columns"] = {
            name: columns for name, columns in snapshot["columns"].items() if name in kept
        }
        for entity in snapshot["columns"]:
            copied[entity] = await _copy(source, target, snapshot, entity, progress)
        await call(target, "coordination.close_snapshot", Jsonb(snapshot))
    logger.info("snapshot_taken", extra={"rows": copied, "position": snapshot["position"]})
    return copied


async def _copy(
    source: Connection,
    target: Connection,
    snapshot: dict[str, Any],
    entity: str,
    progress: Callable[[str, int], None] | None,
) -> int:
    given = entity, snapshot["columns"][entity]
    columns = await call(target, "coordination.open_snapshot", *given)
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
