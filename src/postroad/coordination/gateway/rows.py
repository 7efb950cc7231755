"""Commands to the Writer's tables and queries to the Reader's, the same for every entity.

Rows stay JSON text between the database and the client: parsed in Python, a numeric would become a
floating-point number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from postroad.coordination.errors import RowNotFound, RowRefused, VersionConflict
from postroad.coordination.gateway.shapes import Shape
from postroad.postgres.calls import Connection
from postroad.web.errors import CursorInvalid, RequestInvalid


@dataclass(frozen=True, slots=True)
class Row:
    """A row as JSON text, its version, and its key as text."""

    text: str
    version: str
    key: tuple[str, ...]


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
        image = sql.SQL("(select row_to_json(x.*) from (select {}) x)::text").format(
            sql.SQL(", ").join(
                sql.SQL("{} as {}").format(sql.SQL(column.image), sql.Identifier(column.name))
                for column in shape.columns
            )
        )
        keys = sql.SQL(", ").join(
            sql.SQL("t.{}::text").format(sql.Identifier(k)) for k in shape.keys
        )
        self._row = sql.SQL("{0}, md5({0}), array[{1}]").format(image, keys)

    async def insert(self, connection: Connection, names: Sequence[str], body: str) -> Row:
        """Insert a row with these columns of a JSON object. Raises RowRefused."""
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        values = sql.SQL(
            "({columns}) select {columns} from json_populate_record(null::{table}, %s)"
            if names
            else "default values"
        ).format(columns=columns, table=self._table)
        statement = sql.SQL("insert into {} as t {} returning {}").format(
            self._table, values, self._row
        )
        async with self._refusals():
            cursor = await connection.execute(statement, (body,) if names else None)
            return Row(*await cursor.fetchone() or ())

    async def update(
        self, connection: Connection, key: str, names: Sequence[str], body: str, version: str | None
    ) -> Row:
        """Set these columns from a JSON object. Raises RowNotFound, VersionConflict, RowRefused."""
        row = await self._claim(connection, key, version)
        if not names:
            return row
        # A single column takes no row constructor of one, hence the select.
        statement = sql.SQL(
            "update {table} as t set ({columns}) = (select {columns}"
            " from json_populate_record(null::{table}, %s)) where {same_key} returning {row}"
        ).format(
            table=self._table,
            columns=sql.SQL(", ").join(map(sql.Identifier, names)),
            same_key=self._same_key,
            row=self._row,
        )
        async with self._refusals():
            cursor = await connection.execute(statement, (body, *row.key))
            return Row(*await cursor.fetchone() or ())

    async def delete(self, connection: Connection, key: str, version: str | None) -> None:
        """Delete a row. Raises RowNotFound, VersionConflict, RowRefused."""
        row = await self._claim(connection, key, version)
        statement = sql.SQL("delete from {} t where {}").format(self._table, self._same_key)
        async with self._refusals():
            await connection.execute(statement, row.key)

    async def page(
        self, connection: Connection, after: Sequence[str] | None, limit: int
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
            self._row, self._table, start, keys
        )
        try:
            cursor = await connection.execute(statement, (*(after or ()), limit))
        except psycopg.DataError as refused:
            raise CursorInvalid(
                "the cursor belongs to another list", hint="start without a cursor"
            ) from refused
        return [Row(*row) for row in await cursor.fetchall()]

    def join_key(self, row: Row) -> str:
        """Return the key of a row in the form that `_parts` reads."""
        if len(row.key) == 1:
            return row.key[0]
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(row.key)
        return line.getvalue()

    def _parts(self, key: str) -> list[str]:
        # Several parts are a line of CSV, so that a part may hold a comma.
        parts = (
            next(csv.reader(io.StringIO(key, newline="")), [])
            if len(self._shape.keys) > 1
            else [key]
        )
        if len(parts) != len(self._shape.keys) or "\x00" in key:
            raise RequestInvalid(
                f"a key of {self._shape.name} has {len(self._shape.keys)} parts",
                hint=f"give {','.join(self._shape.keys)}; put a part that has a comma in quotes",
            )
        return parts

    async def _claim(self, connection: Connection, key: str, version: str | None) -> Row:
        row = await self.get(connection, key, " for update")
        if version is not None and row.version != version:
            raise VersionConflict(
                f"{self._shape.name} {key} was changed since it was read",
                hint="read it again and repeat the change",
                entity=self._shape.name,
                key=key,
            )
        return row

    async def get(self, connection: Connection, key: str, lock: LiteralString = "") -> Row:
        """Read one row. Raises RowNotFound."""
        statement = sql.SQL("select {} from {} t where {}{}").format(
            self._row, self._table, self._same_key, sql.SQL(lock)
        )
        try:
            cursor = await connection.execute(statement, self._parts(key))
        except psycopg.DataError as refused:
            raise RequestInvalid(
                f"invalid key {key!r} of {self._shape.name}: {refused.diag.message_primary}",
                hint=f"give {','.join(self._shape.keys)}",
            ) from refused
        row = await cursor.fetchone()
        if row is None:
            raise RowNotFound(
                f"there is no {self._shape.name} {key}",
                hint="a row that was just written is read with ?after=<event id>",
                entity=self._shape.name,
                key=key,
            )
        return Row(*row)

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
