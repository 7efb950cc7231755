"""An entity at the Gateway: its columns, and the request models made from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, create_model

from postroad.postgres.calls import Connection

_TYPES: dict[str, Any] = {
    "bigint": Annotated[int, Field(ge=-(2**63), le=2**63 - 1)],
    "integer": Annotated[int, Field(ge=-(2**31), le=2**31 - 1)],
    "smallint": Annotated[int, Field(ge=-(2**15), le=2**15 - 1)],
    "boolean": bool,
    "uuid": UUID,
    "numeric": Annotated[Decimal, Field(allow_inf_nan=True)],
    "double precision": float,
    "real": float,
    "date": date,
    "timestamp with time zone": datetime,
    "timestamp without time zone": datetime,
    "text": str,
    "character varying": str,
    "character": str,
}

_COLUMNS = """
select e.name, format('%I.%I', e.schema_name, e.table_name), e.key_columns,
  a.attname::text, format_type(a.atttypid, null), information_schema._pg_char_max_length(
    a.atttypid, a.atttypmod)::integer,
  a.attnotnull and not (a.atthasdef or a.attidentity <> ''), not a.attnotnull, a.attidentity = 'a',
  coordination._exact(format('t.%I', a.attname), a.atttypid, true)
from coordination.entity e
join pg_attribute a on a.attrelid = to_regclass(format('%I.%I', e.schema_name, e.table_name))
where e.role = %s and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by e.name, a.attnum
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of an entity."""

    name: str
    type: str
    length: int | None
    is_required: bool
    is_nullable: bool
    is_generated: bool
    # An SQL expression: the value of the column of row `t`, so that its JSON is exact.
    image: str

    def annotation(self) -> Any:
        """Return the type of the column's value in a request."""
        kind = _TYPES.get(self.type, Any)
        if kind is str:
            # NUL cannot be stored as text.
            kind = Annotated[str, Field(max_length=self.length, pattern=r"^[^\x00]*$")]
        return kind | None if self.is_nullable and kind is not Any else kind


@dataclass(frozen=True, slots=True)
class Shape:
    """One entity."""

    name: str
    table: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]

    def creation(self) -> type[BaseModel]:
        """Create the model of a new row: columns without a default are required."""
        return self._model("New", [one for one in self.columns if not one.is_generated])

    def change(self) -> type[BaseModel]:
        """Create the model of a change: an omitted field keeps its value, null is written."""
        return self._model("Change", [one for one in self.columns if one.name not in self.keys])

    def kept_in(self, replica: Shape) -> Shape:
        """Return the shape of a Reader's table, with those of these columns that it has."""
        kept = {column.name for column in replica.columns}
        columns = tuple(column for column in self.columns if column.name in kept)
        return replace(self, table=replica.table, columns=columns)

    def _model(self, purpose: Literal["New", "Change"], columns: list[Column]) -> type[BaseModel]:
        # Columns may have any name, pydantic's fields may not: the column is the alias.
        named: dict[str, Any] = {}
        for number, one in enumerate(columns):
            default = ... if purpose == "New" and one.is_required else None
            named[f"f{number}"] = (one.annotation(), Field(default=default, alias=one.name))
        made: type[BaseModel] = create_model(
            f"{purpose}{self.name}", __config__=ConfigDict(extra="forbid"), **named
        )
        return made


async def read_shapes(connection: Connection, role: Literal["tracked", "replica"]) -> list[Shape]:
    """Read the tracked entities of the Writer's database, or the replicas of a Reader's."""
    cursor = await connection.execute(_COLUMNS.replace("%I", "%%I").encode(), (role,))
    shapes: dict[str, Shape] = {}
    for name, table, keys, *column in await cursor.fetchall():
        shape = shapes.setdefault(name, Shape(name, table, tuple(keys), ()))
        shapes[name] = replace(shape, columns=(*shape.columns, Column(*column)))
    return list(shapes.values())
