"""A fresh install as one script that a database administrator can read and run with psql.

The script does what the migrator does on a fresh database, bookkeeping rows included, so that
`postroad db upgrade` continues from there.
"""

from __future__ import annotations

from psycopg import sql

from postroad.postgres import bookkeeping
from postroad.postgres.bookkeeping import LOCK_KEY
from postroad.postgres.manifest import Manifest, Schema
from postroad.postgres.ownership import own_schema

_HEAD = """\
-- Postroad {version}: fresh install of the schema {schema}.
-- Run as the future owner, in one transaction:  psql -1 -f <this file> <database>
-- Run by a superuser, the schema goes to a role without superuser.
\\set ON_ERROR_STOP on
\\o /dev/null
set local client_min_messages = warning;
set local check_function_bodies = off;
set local standard_conforming_strings = on;
select set_config('postroad.installing', 'yes', true);
select set_config('postroad.installer', current_setting('role'), true);
do $guard$
begin
    if current_setting('postroad.installing', true) is distinct from 'yes' then
        raise exception 'this script must run in one transaction'
            using hint = 'run it with psql -1';
    end if;
    perform pg_advisory_xact_lock({key}, hashtext({name}));
    if current_setting('server_version_num')::integer < 150000 then
        raise exception 'Postroad needs PostgreSQL 15 or newer';
    end if;
    if to_regclass({migration_table}) is not null then
        raise exception 'the schema {schema} is installed already'
            using hint = 'run: postroad db upgrade';
    end if;
end
$guard$;
"""

_SCHEMA = """\
do $schema$
begin
    if to_regnamespace(quote_ident({name})) is null then
        execute format('create schema %I', {name});
    end if;
end
$schema$;
"""
_EXTENSION = """\
do $extension$
begin
    if not exists (select from pg_extension where extname = {extension}) then
        execute format('create extension %I schema %I', {extension}, case
            when has_schema_privilege(current_user, to_regnamespace('public'), 'create')
                then 'public'
            else {schema}
        end);
    end if;
end
$extension$;
"""


def ensure_schema(schema: Schema) -> str:
    """Return the statement that creates a missing schema."""
    return _SCHEMA.format(name=_literal(schema.name))


def ensure_extension(schema: Schema, extension: str) -> str:
    """Return the statement that creates a missing extension, in `public` if possible."""
    return _EXTENSION.format(extension=_literal(extension), schema=_literal(schema.name))


def installation_script(schema: Schema, manifest: Manifest, version: str) -> str:
    """Return the script. Reads nothing but its arguments."""
    name = _literal(schema.name)
    table = sql.Identifier(schema.name, "migration").as_string(None)
    parts = [
        _HEAD.format(
            version=version,
            schema=schema.name,
            key=LOCK_KEY,
            name=name,
            migration_table=_literal(table),
        ),
        ensure_schema(schema),
        *(ensure_extension(schema, extension) for extension in schema.extensions),
        own_schema(schema),
        *(
            f"{step.rstrip()}\n;"
            for step in bookkeeping.steps(schema, manifest, version, None, (), manifest.replaceable)
        ),
        "select set_config('role', current_setting('postroad.installer'), true);",
        "\\o",
    ]
    return "\n".join(parts) + "\n"


def _literal(value: str) -> str:
    return sql.Literal(value).as_string(None)
