"""Commands to the Writer's tables and queries to the Reader's, written once for every entity."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from postroad.coordination.errors import RowNotFound, RowRefused, VersionConflict
from postroad.coordination.gateway.shapes import Shape
from postroad.web import CursorInvalid, RequestInvalid

__all__ = ["Rows", "Written"]

Row = dict[str, Any]


class Written:
    """What a command did: the event that it wrote, the row as it is now, and its version."""

    def __init__(self, event_id: int | None, row: Row | None, version: str | None) -> None:
        self.event_id = event_id
        self.row = row
        self.version = version


class Rows:
    """The rows of one entity."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.columns = tuple(column.name for column in shape.columns)
        self._table = sql.SQL(shape.table)
        self._types = {column.name: sql.SQL(column.type) for column in shape.columns}
        # Cast to the key's own type, so that its index is used.
        self._same_key = sql.SQL(" and ").join(
            sql.SQL("t.{} = %s::{}").format(sql.Identifier(key), self._types[key])
            for key in shape.keys
        )
        # The same columns in the same order on both sides give the same version on both sides.
        self._image = sql.SQL("(select row_to_json(x.*) from (select {}) x)").format(
            sql.SQL(", ").join(
                sql.SQL("t.{}").format(sql.Identifier(column.name)) for column in shape.columns
            )
        )

    async def insert(self, connection: AsyncConnection[Any], values: Row) -> Written:
        """Insert a row. Raises RowRefused."""
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        statement = sql.SQL(
            "insert into {table} as t ({names}) select {names}"
            " from json_populate_record(null::{table}, %s) returning {image}, md5({image}::text)"
        ).format(table=self._table, names=names, image=self._image)
        if not values:
            statement = sql.SQL(
                "insert into {table} as t default values returning {image}, md5({image}::text)"
            ).format(table=self._table, image=self._image)
        async with self._refusals():
            cursor = await connection.execute(
                statement, (json.dumps(values, default=str),) if values else None
            )
            row = await cursor.fetchone()
        return await self._written(connection, row)

    async def update(
        self, connection: AsyncConnection[Any], key: str, values: Row, version: str | None
    ) -> Written:
        """Change a row. Raises RowNotFound, VersionConflict, RowRefused."""
        parts = self._parts(key)
        await self._claim(connection, key, parts, version)
        if not values:
            return await self._current(connection, key, parts)
        # A single column takes no row constructor of one, hence the select.
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        statement = sql.SQL(
            "update {table} as t set ({names}) = (select {names}"
            " from json_populate_record(null::{table}, %s)) where {same_key}"
            " returning {image}, md5({image}::text)"
        ).format(table=self._table, names=names, same_key=self._same_key, image=self._image)
        async with self._refusals():
            cursor = await connection.execute(statement, (json.dumps(values, default=str), *parts))
            row = await cursor.fetchone()
        return await self._written(connection, row)

    async def delete(
        self, connection: AsyncConnection[Any], key: str, version: str | None
    ) -> Written:
        """Delete a row. Raises RowNotFound, VersionConflict, RowRefused."""
        parts = self._parts(key)
        await self._claim(connection, key, parts, version)
        async with self._refusals():
            await connection.execute(
                sql.SQL("delete from {} t where {}").format(self._table, self._same_key), parts
            )
        return await self._written(connection, None)

    async def get(self, connection: AsyncConnection[Any], key: str) -> Written:
        """Read one row. Raises RowNotFound."""
        return await self._current(connection, key, self._parts(key))

    async def page(
        self, connection: AsyncConnection[Any], after: Sequence[str] | None, limit: int
    ) -> list[Row]:
        """Read rows in order of their keys, from after a key on."""
        keys = sql.SQL(", ").join(
            sql.SQL("t.{}").format(sql.Identifier(key)) for key in self._shape.keys
        )
        start: sql.Composable = sql.SQL("")
        if after is not None:
            values = sql.SQL(", ").join(
                sql.SQL("%s::{}").format(self._types[key]) for key in self._shape.keys
            )
            start = sql.SQL(" where ({}) > ({})").format(keys, values)
        statement = sql.SQL("select {} from {} t{} order by {} limit %s").format(
            self._image, self._table, start, keys
        )
        try:
            cursor = await connection.execute(statement, (*(after or ()), limit))
        except psycopg.DataError as refused:
            raise CursorInvalid(
                "the cursor belongs to another list", hint="begin without one"
            ) from refused
        return [row[0] for row in await cursor.fetchall()]

    def key_of(self, row: Row) -> list[str]:
        """Give the key of a row, as text."""
        return [str(row[key]) for key in self._shape.keys]

    def _parts(self, key: str) -> list[str]:
        parts = key.split(",") if len(self._shape.keys) > 1 else [key]
        if len(parts) != len(self._shape.keys) or "\x00" in key:
            raise RequestInvalid(
                f"a key of {self._shape.name} has {len(self._shape.keys)} parts",
                hint=f"give {','.join(self._shape.keys)}, parted by commas",
            )
        return parts

    async def _claim(
        self, connection: AsyncConnection[Any], key: str, parts: Sequence[str], version: str | None
    ) -> None:
        async with self._unreadable_key(key):
            cursor = await connection.execute(
                sql.SQL("select md5({}::text) from {} t where {} for update").format(
                    self._image, self._table, self._same_key
                ),
                parts,
            )
            row = await cursor.fetchone()
        if row is None:
            raise self._missing(key)
        if version is not None and row[0] != version:
            raise VersionConflict(
                f"{self._shape.name} {key} was changed since it was read",
                hint="read it again and decide anew",
                entity=self._shape.name,
                key=key,
            )

    async def _current(
        self, connection: AsyncConnection[Any], key: str, parts: Sequence[str]
    ) -> Written:
        async with self._unreadable_key(key):
            cursor = await connection.execute(
                sql.SQL("select {0}, md5({0}::text) from {1} t where {2}").format(
                    self._image, self._table, self._same_key
                ),
                parts,
            )
            row = await cursor.fetchone()
        if row is None:
            raise self._missing(key)
        return Written(None, row[0], row[1])

    async def _written(self, connection: AsyncConnection[Any], row: Any) -> Written:
        cursor = await connection.execute("select coordination.current_event()")
        event = await cursor.fetchone()
        return Written(event[0] if event else None, *(row or (None, None)))

    def _missing(self, key: str) -> RowNotFound:
        return RowNotFound(
            f"there is no {self._shape.name} {key}",
            hint="a row that was just written is seen with ?after=<event id>",
            entity=self._shape.name,
            key=key,
        )

    @asynccontextmanager
    async def _unreadable_key(self, key: str) -> AsyncIterator[None]:
        try:
            yield
        except psycopg.DataError as refused:
            raise RequestInvalid(
                f"{key!r} is no key of {self._shape.name}: {refused.diag.message_primary}",
                hint=f"give {','.join(self._shape.keys)}",
            ) from refused

    @asynccontextmanager
    async def _refusals(self) -> AsyncIterator[None]:
        try:
            yield
        except (psycopg.IntegrityError, psycopg.DataError) as refused:
            raise RowRefused(
                refused.diag.message_primary or str(refused),
                hint=refused.diag.message_detail,
                entity=self._shape.name,
            ) from refused
