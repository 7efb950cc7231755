"""Commands to the Writer's tables and queries to the Reader's, the same for every entity.

Rows stay JSON text between the database and the client: parsed in Python, a numeric would become a
floating-point number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import LiteralString, NamedTuple

import psycopg
from psycopg import sql

from postroad.coordination.errors import RowNotFound, RowRefused, VersionConflict
from postroad.coordination.gateway.shapes import Shape
from postroad.postgres.calls import Connection
from postroad.web.errors import CursorInvalid, RequestInvalid


class Row(NamedTuple):
    """A row as JSON text, its version, and its key as text."""

    text: str
    version: str
    key: Sequence[str]

    @property
    def joined_key(self) -> str:
        """The key in the form that `Rows.get` reads."""
        if len(self.key) == 1:
            return self.key[0]
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(self.key)
        return line.getvalue()


class Rows:
    """The rows of one entity."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.columns = tuple(column.name for column in shape.columns)
        types = {column.name: column.type for column in shape.columns}
        keys = [sql.SQL("t.{}").format(sql.Identifier(key)) for key in shape.keys]
        # The same columns in the same order on both sides give the same version on both sides.
        image = sql.SQL("(select row_to_json(x.*) from (select {}) x)::text").format(
            _list(
                sql.SQL("{} as {}").format(sql.SQL(column.image), sql.Identifier(column.name))
                for column in shape.columns
            )
        )
        self._parts = {
            "table": sql.SQL(shape.table),
            "keys": _list(keys),
            # Cast to the key's own types, so that its index is used.
            "given": _list(sql.SQL("%s::" + types[key]) for key in shape.keys),
            "row": sql.SQL("{0}, md5({0}), array[{1}]").format(
                image, _list(sql.SQL("{}::text").format(key) for key in keys)
            ),
        }

    async def insert(self, connection: Connection, names: Sequence[str], body: str) -> Row:
        """Insert a row with these columns of a JSON object. Raises RowRefused."""
        if not names:
            text: LiteralString = "insert into {table} as t default values returning {row}"
            return await self._write(connection, text)
        text = (
            "insert into {table} as t ({columns})"
            " select {columns} from json_populate_record(null::{table}, %s) returning {row}"
        )
        return await self._write(connection, text, body, columns=names)

    async def update(
        self, connection: Connection, key: str, names: Sequence[str], body: str, version: str | None
    ) -> Row:
        """Set these columns from a JSON object. Raises RowNotFound, VersionConflict, RowRefused."""
        row = await self._claim(connection, key, version)
        if not names:
            return row
        # A single column cannot be set from a row constructor, hence the select.
        text: LiteralString = (
            "update {table} as t set ({columns}) = (select {columns}"
            " from json_populate_record(null::{table}, %s)) where ({keys}) = ({given})"
            " returning {row}"
        )
        return await self._write(connection, text, body, *row.key, columns=names)

    async def delete(self, connection: Connection, key: str, version: str | None) -> None:
        """Delete a row. Raises RowNotFound, VersionConflict, RowRefused."""
        row = await self._claim(connection, key, version)
        text: LiteralString = "delete from {table} t where ({keys}) = ({given}) returning {row}"
        await self._write(connection, text, *row.key)

    async def page(
        self, connection: Connection, after: Sequence[str] | None, limit: int
    ) -> list[Row]:
        """Read rows in order of their keys, from after a key on."""
        start = "true" if after is None else "({keys}) > ({given})"
        statement = self._text(
            "select {row} from {table} t where {start} order by {keys} limit %s",
            start=self._text(start),
        )
        try:
            cursor = await connection.execute(statement, (*(after or ()), limit))
        except psycopg.DataError as refused:
            raise CursorInvalid(
                "the cursor belongs to another list", hint="start without a cursor"
            ) from refused
        return [Row(*row) for row in await cursor.fetchall()]

    async def get(self, connection: Connection, key: str, lock: LiteralString = "") -> Row:
        """Read one row. Raises RowNotFound."""
        text: LiteralString = "select {row} from {table} t where ({keys}) = ({given}) {lock}"
        statement = self._text(text, lock=sql.SQL(lock))
        name, keys = self._shape.name, ",".join(self._shape.keys)
        # A key of several parts is a line of CSV, so that a part may contain a comma.
        is_line = len(self._shape.keys) > 1
        parts = next(csv.reader(io.StringIO(key, newline="")), []) if is_line else [key]
        if len(parts) != len(self._shape.keys) or "\x00" in key:
            raise RequestInvalid(
                f"a key of {name} has {len(self._shape.keys)} parts",
                hint=f"pass {keys}; put a part that contains a comma in quotes",
            )
        try:
            cursor = await connection.execute(statement, parts)
        except psycopg.DataError as refused:
            raise RequestInvalid(
                f"invalid key {key!r} of {name}: {refused.diag.message_primary}",
                hint=f"pass {keys}",
            ) from refused
        row = await cursor.fetchone()
        if row is None:
            raise RowNotFound(
                f"there is no {name} {key}",
                hint="a row that was just written is read with ?after=<event id>",
                entity=name,
                key=key,
            )
        return Row(*row)

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

    async def _write(
        self,
        connection: Connection,
        text: LiteralString,
        *parameters: str,
        columns: Sequence[str] = (),
    ) -> Row:
        try:
            cursor = await connection.execute(
                self._text(text, columns=_list(map(sql.Identifier, columns))), parameters
            )
            return Row(*await cursor.fetchone() or ())
        except (psycopg.IntegrityError, psycopg.DataError) as refused:
            raise RowRefused(
                refused.diag.message_primary or str(refused),
                hint=refused.diag.message_detail,
                entity=self._shape.name,
            ) from refused

    def _text(self, text: LiteralString, **more: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(**self._parts, **more)


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
