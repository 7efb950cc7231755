"""Errors of the database server, the embedded one, and of the migrator."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg

from postroad.errors import PostroadError

Family = TypeVar("Family", bound=PostroadError)


class DatabaseError(PostroadError, code="database"):
    """The database cannot be used."""


class DatabaseUnavailable(
    DatabaseError, code="database_unavailable", kind="unavailable", retryable=True
):
    """The database does not answer at the moment."""


class ServerTooOld(DatabaseError, code="server_too_old", kind="refused"):
    """The server is older than Postroad supports."""


class EmbeddedError(DatabaseError, code="embedded"):
    """The embedded server cannot be used."""


class BinariesNotFound(EmbeddedError, code="binaries_not_found", kind="unavailable"):
    """The programs of PostgreSQL (initdb, pg_ctl) are not installed."""


class ServerUserMissing(EmbeddedError, code="server_user_missing", kind="unavailable"):
    """PostgreSQL does not run as root, and the system user for it cannot be created."""


class DataFolderRefused(EmbeddedError, code="data_folder_refused", kind="refused"):
    """The data folder belongs to another major version or cannot be used."""


class ServerNotStarted(EmbeddedError, code="server_not_started", kind="unavailable"):
    """The server could not be created or started."""


class ServerInUse(EmbeddedError, code="server_in_use", kind="refused", retryable=True):
    """Other processes use the server."""


class SchemaError(DatabaseError, code="schema"):
    """The schema of a component does not fit this version of Postroad."""


class SchemaMissing(SchemaError, code="schema_missing", kind="not_found"):
    """The schema is not installed."""


class SchemaBehind(SchemaError, code="schema_behind", kind="refused"):
    """The schema lacks migrations that this version of Postroad needs."""


class SchemaBusy(SchemaError, code="schema_busy", kind="unavailable", retryable=True):
    """Transactions that do not end hold what an upgrade changes."""


class SchemaNewer(SchemaError, code="schema_newer", kind="refused"):
    """The schema was installed or upgraded by a newer Postroad."""


class SchemaForeign(SchemaError, code="schema_foreign", kind="refused"):
    """A schema of this name exists that Postroad did not install."""


class RightMissing(SchemaError, code="right_missing", kind="refused"):
    """The user lacks a privilege that the installation needs."""


class ExtensionMissing(SchemaError, code="extension_missing", kind="refused"):
    """An extension is missing and the user cannot create it."""


class ManifestBroken(SchemaError, code="manifest_broken"):
    """The SQL files of a component contradict their manifest."""


class ConnectionNotIdle(SchemaError, code="connection_not_idle", kind="usage"):
    """The connection given to the migrator is inside a transaction."""


def raised_by(family: type[Family], error: psycopg.Error, **facts: Any) -> Family | None:
    """Return the family's error whose code is the SQLSTATE of a driver error; None if it has none.

    The database's message and hint are kept. Raise the result from the driver error.
    """
    leaves = family.__subclasses__()
    while leaves:
        leaf = leaves.pop()
        if leaf.code == error.sqlstate:
            found = error.diag
            return leaf(found.message_primary or str(error), hint=found.message_hint, **facts)
        leaves += leaf.__subclasses__()
    return None
