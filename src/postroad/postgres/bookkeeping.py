"""The migrator's own tables in a component's schema.

| table | row |
|---|---|
| `migration` | a migration that the schema contains; whether it breaks older code |
| `replaceable` | a listed file and the checksum of the text that was last run |
| `release` | a version of Postroad that installed or upgraded, append-only |

Templates are stored in the component's table `template(name, body)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection, sql

from postroad.postgres.manifest import Manifest, Migration, Schema, SqlFile

# The first key of the advisory lock, "post" in ASCII; the second is made from the schema's name.
LOCK_KEY = 0x706F7374

CREATE_TABLES: LiteralString = """
create table {schema}.migration (
    name text primary key,
    applied_at timestamptz not null default clock_timestamp(),
    breaks_older boolean not null
);
create table {schema}.replaceable (
    path text primary key,
    checksum text not null,
    replaced_at timestamptz not null default clock_timestamp()
);
create table {schema}.release (
    id bigint generated always as identity primary key,
    version text not null,
    installed_at timestamptz not null default clock_timestamp()
);
revoke all on {schema}.migration, {schema}.replaceable, {schema}.release from public;
"""

PIN_SEARCH_PATH: LiteralString = """
select set_config('search_path', concat_ws(', ', 'pg_catalog', quote_ident({schema}), (
    select string_agg(distinct quote_ident(n.nspname), ', ')
    from pg_extension e
    join pg_namespace n on n.oid = e.extnamespace
    where e.extname = any ({extensions}::text[]) and n.nspname not in ('pg_catalog', {schema})
), 'pg_temp'), true)
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The records of an installed schema; migrations map to whether they break older code."""

    version: str
    migrations: dict[str, bool]
    checksums: dict[str, str]


def lock(connection: Connection, schema: str) -> None:
    """Wait until this transaction is the only one that migrates the schema."""
    connection.execute("select pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK_KEY, schema))


def read(connection: Connection, schema: str) -> Recorded | None:
    """Return what is recorded, or None where the schema is not installed."""
    row = connection.execute(
        "select to_regclass(format('%%I.migration', %s::text)) is not null"
        " and to_regclass(format('%%I.release', %s::text)) is not null",
        (schema, schema),
    ).fetchone()
    if row is None or not row[0]:
        return None
    migrations = _rows(connection, "select name, breaks_older from {schema}.migration", schema)
    checksums = _rows(connection, "select path, checksum from {schema}.replaceable", schema)
    last = _rows(
        connection, "select version, id from {schema}.release order by id desc limit 1", schema
    )
    return Recorded(str(last[0][0]) if last else "0", dict(migrations), dict(checksums))


def is_occupied(connection: Connection, schema: str) -> bool:
    """Whether a schema without bookkeeping contains objects other than those of extensions."""
    row = connection.execute(
        """
        select exists (
            select from pg_depend d
            where d.refclassid = 'pg_namespace'::regclass
              and d.refobjid = to_regnamespace(quote_ident(%s))
              and d.classid in ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_type'::regclass)
              and not exists (
                  select from pg_depend e
                  where e.classid = d.classid and e.objid = d.objid and e.deptype = 'e'
              )
        )
        """,
        (schema,),
    ).fetchone()
    return bool(row and row[0])


def create_tables(schema: str) -> sql.Composed:
    """Return the statements that create the bookkeeping tables."""
    return sql.SQL(CREATE_TABLES).format(schema=sql.Identifier(schema))


def pin_search_path(schema: Schema) -> sql.Composed:
    """Return the statement that sets the search path: catalogue, schema, extensions."""
    return sql.SQL(PIN_SEARCH_PATH).format(
        schema=sql.Literal(schema.name), extensions=sql.Literal(list(schema.extensions))
    )


def migration_row(schema: str, migration: Migration) -> sql.Composed:
    """Return the statement that records a migration."""
    row = {"name": migration.name, "breaks_older": migration.breaks_older}
    return _insert(schema, "migration", row)


def file_row(schema: str, file: SqlFile) -> sql.Composed:
    """Return the statement that records the checksum of a file that was run."""
    row = {"path": file.path, "checksum": file.checksum}
    update: LiteralString = "checksum = excluded.checksum, replaced_at = clock_timestamp()"
    return _insert(schema, "replaceable", row, f" on conflict (path) do update set {update}")


def template_row(schema: str, file: SqlFile) -> sql.Composed:
    """Return the statement that stores a template as text."""
    row = {"name": file.template_name, "body": file.body}
    return _insert(
        schema, "template", row, " on conflict (name) do update set body = excluded.body"
    )


def release_row(schema: str, version: str) -> sql.Composed:
    """Return the statement that records the version that installs or upgrades."""
    return _insert(schema, "release", {"version": version})


def _insert(
    schema: str, table: str, row: Mapping[str, object], tail: LiteralString = ""
) -> sql.Composed:
    # Literals instead of parameters: the script for psql contains the same statements.
    statement = sql.SQL("insert into {} ({}) values ({})").format(
        sql.Identifier(schema, table),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join(map(sql.Literal, row.values())),
    )
    return statement + sql.SQL(tail)


def forget_files(connection: Connection, schema: str, manifest: Manifest) -> None:
    """Delete the records of files that are no longer listed; a migration drops their objects."""
    listed = [file.path for file in manifest.replaceable]
    gone = connection.execute(
        sql.SQL("delete from {}.replaceable where not path = any (%s) returning path").format(
            sql.Identifier(schema)
        ),
        (listed,),
    ).fetchall()
    for (path,) in gone:
        if path.startswith("templates/"):
            connection.execute(
                sql.SQL("delete from {}.template where name = %s").format(sql.Identifier(schema)),
                (SqlFile(path, "template", "").template_name,),
            )


def release_order(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare releases by."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _rows(connection: Connection, query: LiteralString, schema: str) -> list[tuple[str, Any]]:
    return connection.execute(sql.SQL(query).format(schema=sql.Identifier(schema))).fetchall()
