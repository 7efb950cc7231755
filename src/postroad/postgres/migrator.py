"""The migrator: brings a component's schema to this version, atomically.

Everything happens in one READ COMMITTED transaction under an advisory lock, so that any number of
processes may install concurrently: the first one does the work. Only changes of tables that former
versions can work with are committed before, if a migration has such (see manifest.py). The steps:

1. refuse: server older than 15, schema that is newer than this version or not ours;
2. extensions (only when missing), schema, bookkeeping tables;
3. as superuser: the schema goes to a role without superuser, and the rest runs as that role;
4. `search_path` pinned, so that functions may use `set search_path from current`;
5. fresh: every listed file. Existing: new migrations, then every replaceable file whose text
   changed; after a migration all of them, because it may have dropped what it changes;
6. whenever anything was replaced: `after.sql` and `grants.sql`, if there are such; then no function
   is executable by PUBLIC, which may execute a new function by default;
7. existing: other sessions discard their plans.

A lock that is not granted in time ends the attempt, and the migrator tries again.

Critical section: from the advisory lock to the end of the transaction. Only the schema outlives the
transaction, so it works through a pooler in transaction mode.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Literal

from psycopg import Connection, errors
from psycopg.pq import TransactionStatus

from postroad.backoff import Backoff
from postroad.postgres import bookkeeping, ownership
from postroad.postgres.bookkeeping import Recorded
from postroad.postgres.errors import (
    ConnectionNotIdle,
    ExtensionMissing,
    RightMissing,
    SchemaBehind,
    SchemaBusy,
    SchemaForeign,
    SchemaMissing,
    SchemaNewer,
    ServerTooOld,
)
from postroad.postgres.installation_script import (
    ensure_extension,
    ensure_schema,
    installation_script,
)
from postroad.postgres.manifest import Manifest, Migration, Schema, SqlFile, read_manifest

MIN_SERVER_VERSION = 150000
LOCK_TIMEOUTS = (*[50] * 10, 100, 200, 400, 800, 1600, 3200, 5000, 5000)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an install or upgrade, or of its dry run."""

    schema: str
    is_fresh: bool
    migrations: tuple[str, ...]
    replaced: tuple[str, ...]
    is_owner_changed: bool = False

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing had to be done."""
        return not (self.is_fresh or self.migrations or self.replaced or self.is_owner_changed)


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The differences between a schema and this version. `version` is that of the last install."""

    schema: str
    is_installed: bool
    version: str | None
    server_version: int
    applied: tuple[str, ...]
    pending: tuple[str, ...]
    unknown: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to do."""
        return self.is_installed and not (self.pending or self.unknown or self.changed)

    @property
    def state(self) -> Literal["missing", "newer", "current", "behind"]:
        """The result of the comparison in one word."""
        if not self.is_installed:
            return "missing"
        if self.unknown:
            return "newer"
        return "current" if self.is_current else "behind"


def install(connection: Connection, schema: Schema, *, is_dry_run: bool = False) -> Outcome:
    """Install the schema, or upgrade an installed one.

    Commits a separate transaction on the given idle connection. A dry run changes nothing and
    returns the planned steps. Raises SchemaNewer, SchemaForeign, SchemaBusy, RightMissing,
    ExtensionMissing, ServerTooOld, ConnectionNotIdle, or the driver's error of a file that failed;
    in each case nothing changed.
    """
    return _migrate(connection, schema, may_install=True, is_dry_run=is_dry_run)


def upgrade(connection: Connection, schema: Schema, *, is_dry_run: bool = False) -> Outcome:
    """Do what `install` does, but raise SchemaMissing where nothing is installed."""
    return _migrate(connection, schema, may_install=False, is_dry_run=is_dry_run)


def status(connection: Connection, schema: Schema) -> SchemaStatus:
    """Compare the schema with this version of Postroad. Read-only."""
    manifest = read_manifest(schema)
    recorded = bookkeeping.read(connection, schema.name)
    known = {migration.name for migration in manifest.migrations}
    return SchemaStatus(
        schema=schema.name,
        is_installed=recorded is not None,
        version=recorded.version if recorded else None,
        server_version=connection.info.server_version,
        applied=tuple(sorted(recorded.migrations)) if recorded else (),
        pending=tuple(migration.name for migration in _pending(manifest, recorded)),
        unknown=tuple(sorted(recorded.migrations.keys() - known)) if recorded else (),
        changed=tuple(file.path for file in _changed(manifest, recorded)),
    )


def require(connection: Connection, schema: Schema) -> None:
    """Refuse to work on a schema that does not fit. Read-only; for processes at their start.

    Older code may run on a schema that a newer Postroad only expanded. Raises SchemaMissing,
    SchemaBehind, or SchemaNewer when a migration was applied that breaks older code.
    """
    manifest = read_manifest(schema)
    recorded = bookkeeping.read(connection, schema.name)
    if recorded is None:
        raise _missing(schema)
    if pending := _pending(manifest, recorded):
        raise SchemaBehind(
            f"the schema {schema.name} lacks {len(pending)} migration(s), first {pending[0].name}",
            hint="run: postroad db upgrade",
            schema=schema.name,
        )
    known = {migration.name for migration in manifest.migrations}
    if breaking := sorted(
        name for name, breaks in recorded.migrations.items() if breaks and name not in known
    ):
        raise _newer(schema, breaking)


def script(schema: Schema) -> str:
    """Return a fresh install as one SQL script, to be run by `psql -1 -f`."""
    return installation_script(schema, read_manifest(schema), version("postroad"))


def _migrate(
    connection: Connection, schema: Schema, *, may_install: bool, is_dry_run: bool
) -> Outcome:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise ConnectionNotIdle("the migrator needs a connection that is not inside a transaction")
    backoff = Backoff(longest=timedelta(seconds=1))
    busy: errors.Error | None = None
    for lock_timeout in LOCK_TIMEOUTS:
        try:
            if not is_dry_run:
                _attempt(connection, schema, may_install, is_dry_run, lock_timeout, is_ahead=True)
            return _attempt(connection, schema, may_install, is_dry_run, lock_timeout)
        except (errors.LockNotAvailable, errors.DeadlockDetected) as refused:
            busy = refused
        time.sleep(backoff.next_seconds())
    raise SchemaBusy(
        f"the schema {schema.name} is in use by transactions that do not end",
        hint="end them and repeat; nothing was changed",
        schema=schema.name,
    ) from busy


def _attempt(
    connection: Connection,
    schema: Schema,
    may_install: bool,
    is_dry_run: bool,
    lock_timeout: int,
    *,
    is_ahead: bool = False,
) -> Outcome:
    manifest = read_manifest(schema)
    with connection.transaction(force_rollback=is_dry_run):
        # The commit of the lock's former holder must be visible after the wait.
        connection.execute("set transaction isolation level read committed")
        if is_dry_run:
            connection.execute("set transaction read only")
        else:
            bookkeeping.lock(connection, schema.name)
            connection.execute(
                "select set_config('lock_timeout', %s, true)"
                " where current_setting('lock_timeout') = '0'",
                (f"{lock_timeout}ms",),
            )
        if connection.info.server_version < MIN_SERVER_VERSION:
            raise ServerTooOld("Postroad needs PostgreSQL 15 or newer")
        recorded = bookkeeping.read(connection, schema.name)
        if recorded is None:
            if not may_install:
                raise _missing(schema)
            if bookkeeping.is_occupied(connection, schema.name):
                raise SchemaForeign(
                    f"the schema {schema.name} holds objects that Postroad did not install",
                    hint="use another database, or rename or drop that schema first",
                    schema=schema.name,
                )
        else:
            _refuse_newer(schema, manifest, recorded)
        migrations = _pending(manifest, recorded)
        replaced = _to_replace(manifest, recorded, has_migrations=bool(migrations))
        outcome = Outcome(
            schema=schema.name,
            is_fresh=recorded is None,
            migrations=tuple(migration.name for migration in migrations),
            replaced=tuple(file.path for file in replaced),
            is_owner_changed=recorded is not None and ownership.is_owner_wrong(connection, schema),
        )
        ahead = "".join(migration.ahead for migration in migrations)
        if is_dry_run or outcome.is_unchanged or (is_ahead and not ahead):
            return outcome
        connection.execute("set local client_min_messages = warning")
        connection.execute("set local check_function_bodies = off")
        if recorded is None:
            _ensure_schema(connection, schema)
        for extension in schema.extensions:
            _ensure_extension(connection, schema, extension)
        connection.execute(ownership.own_schema(schema).encode())
        if is_ahead:
            connection.execute(ahead.encode())
            return outcome
        own = version("postroad")
        for step in bookkeeping.steps(schema, manifest, own, recorded, migrations, replaced):
            connection.execute(step.encode())
    return outcome


def _pending(manifest: Manifest, recorded: Recorded | None) -> tuple[Migration, ...]:
    if recorded is None:
        return ()
    return tuple(one for one in manifest.migrations if one.name not in recorded.migrations)


def _changed(manifest: Manifest, recorded: Recorded | None) -> tuple[SqlFile, ...]:
    if recorded is None:
        return ()
    return tuple(
        file for file in manifest.replaceable if recorded.checksums.get(file.path) != file.checksum
    )


def _to_replace(
    manifest: Manifest, recorded: Recorded | None, *, has_migrations: bool
) -> tuple[SqlFile, ...]:
    if recorded is None or has_migrations:
        return manifest.replaceable
    changed = {file.path for file in _changed(manifest, recorded)}
    with_grants = changed and changed | {"grants.sql"}
    return tuple(file for file in manifest.replaceable if file.path in with_grants)


def _refuse_newer(schema: Schema, manifest: Manifest, recorded: Recorded) -> None:
    known = {migration.name for migration in manifest.migrations}
    if unknown := sorted(recorded.migrations.keys() - known):
        raise _newer(schema, unknown)
    own = version("postroad")
    # Functions alone may have changed between releases; restoring the old ones is not an upgrade.
    if bookkeeping.release_order(recorded.version) > bookkeeping.release_order(own):
        raise SchemaNewer(
            f"the schema {schema.name} was installed by Postroad {recorded.version}, this is {own}",
            hint="upgrade Postroad first",
            schema=schema.name,
        )


def _newer(schema: Schema, unknown: list[str]) -> SchemaNewer:
    return SchemaNewer(
        f"the schema {schema.name} is newer than this version: it has {', '.join(unknown)}",
        hint="upgrade Postroad first",
        schema=schema.name,
    )


def _missing(schema: Schema) -> SchemaMissing:
    return SchemaMissing(
        f"the schema {schema.name} is not installed in this database",
        hint="run: postroad db install",
        schema=schema.name,
    )


def _ensure_schema(connection: Connection, schema: Schema) -> None:
    try:
        connection.execute(ensure_schema(schema).encode())
    except errors.InsufficientPrivilege as refused:
        info = connection.info
        raise RightMissing(
            f"the user {info.user} may not create a schema in the database {info.dbname}",
            hint=f"ask its owner for: grant create on database {info.dbname} to {info.user}",
            schema=schema.name,
        ) from refused


def _ensure_extension(connection: Connection, schema: Schema, extension: str) -> None:
    try:
        connection.execute(ensure_extension(schema, extension).encode())
    except (errors.InsufficientPrivilege, errors.FeatureNotSupported) as refused:
        raise ExtensionMissing(
            f"the extension {extension} is missing and cannot be created here: "
            f"{refused.diag.message_primary}",
            hint=f"ask the database's owner or an administrator for: create extension {extension}",
            extension=extension,
        ) from refused
