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
from collections.abc import Iterator, Sequence
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

CLOSE_SCHEMA: LiteralString = """
do $close$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = {schema}::regnamespace
      and has_function_privilege('public', p.oid, 'execute')
      and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
  loop
    execute format('revoke execute on routine %s from public', v_function);
  end loop;
end
$close$
"""

RECORD_MIGRATION: LiteralString = (
    "insert into {schema}.migration (name, breaks_older) values ({name}, {breaks})"
)
RECORD_FILE: LiteralString = """
insert into {schema}.replaceable (path, checksum) values ({path}, {checksum})
on conflict (path) do update set checksum = excluded.checksum, replaced_at = clock_timestamp()
"""
STORE_TEMPLATE: LiteralString = """
insert into {schema}.template (name, body) values ({name}, {body})
on conflict (name) do update set body = excluded.body
"""
RECORD_RELEASE: LiteralString = "insert into {schema}.release (version) values ({version})"
# A migration drops the objects of files that are no longer listed.
FORGET_FILES: LiteralString = "delete from {schema}.replaceable where not path = any ({paths})"
FORGET_TEMPLATES: LiteralString = """
delete from {schema}.template where not 'templates/' || name || '.sql' = any ({paths})
"""

# A session searches all its plans for each replaced function, which takes seconds where clients use
# a thousand queues. A session that has more than 4,096 invalidations to process (MAXNUMMESSAGES of
# PostgreSQL) discards all plans instead, in milliseconds. The labels of an enum are that many, and
# no plan depends on them.
SKIP_INVALIDATIONS: LiteralString = """
do $skip$ begin
  execute (select format('create type {schema}._invalidated as enum (%s)',
                         string_agg(quote_literal(n), ',')) from generate_series(1, 2000) n);
  drop type {schema}._invalidated;
end $skip$
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
    # Not by name as `to_regclass`: after the wait for the lock names are still those of before.
    row = connection.execute(
        "select count(*) = 2 from pg_tables"
        " where schemaname = %s and tablename in ('migration', 'release')",
        (schema,),
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


def steps(
    schema: Schema,
    manifest: Manifest,
    version: str,
    recorded: Recorded | None,
    migrations: Sequence[Migration],
    replaced: Sequence[SqlFile],
) -> Iterator[str]:
    """Yield the statements that install a schema, or upgrade one that has records.

    The migrator executes them; the script for psql contains the same ones.
    """
    name, literal = sql.Identifier(schema.name), sql.Literal(schema.name)
    yield _text(PIN_SEARCH_PATH, schema=literal, extensions=list(schema.extensions))
    if recorded is None:
        yield _text(CREATE_TABLES, schema=name)
    for migration in manifest.migrations if recorded is None else migrations:
        if recorded is not None:
            yield migration.body
        yield _text(
            RECORD_MIGRATION, schema=name, name=migration.name, breaks=migration.breaks_older
        )
    # In the order of the manifest, because a table's default may need a function before it.
    for file in manifest.files:
        if file.kind == "template" and file in replaced:
            yield _text(STORE_TEMPLATE, schema=name, name=file.template_name, body=file.body)
        elif file in replaced or file.kind == "after" or recorded is None:
            yield f"-- {file.path}\n{file.body}"
        if file in replaced:
            yield _text(RECORD_FILE, schema=name, path=file.path, checksum=file.checksum)
    if recorded is not None:
        paths = [file.path for file in manifest.replaceable]
        yield _text(FORGET_FILES, schema=name, paths=paths)
        if any(path.startswith("templates/") for path in recorded.checksums):
            yield _text(FORGET_TEMPLATES, schema=name, paths=paths)
    yield _text(CLOSE_SCHEMA, schema=literal)
    yield _text(RECORD_RELEASE, schema=name, version=version)
    if recorded is not None:
        yield _text(SKIP_INVALIDATIONS, schema=name)


def _text(statement: LiteralString, **parts: object) -> str:
    # Literals instead of parameters: the script for psql contains the same statements.
    return sql.SQL(statement).format(**parts).as_string(None)


def release_order(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare releases by."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _rows(connection: Connection, query: LiteralString, schema: str) -> list[tuple[str, Any]]:
    return connection.execute(sql.SQL(query).format(schema=sql.Identifier(schema))).fetchall()
