"""Errors of the room postgres.

```
DatabaseError
├── DatabaseUnavailable        the database does not answer            (retryable)
├── ServerTooOld               PostgreSQL older than 15
├── EmbeddedError              the embedded server
│   ├── BinariesNotFound       no initdb and pg_ctl
│   ├── ServerUserMissing      root cannot run it, and the system user cannot be made
│   ├── DataFolderRefused      another major version, or not ours
│   ├── ServerNotStarted       initdb or pg_ctl failed; the log says why
│   └── ServerInUse            told to stop while others use it
└── SchemaError                the migrator
    ├── SchemaMissing          not installed
    ├── SchemaBehind           older than this Postroad
    ├── SchemaNewer            newer than this Postroad
    ├── SchemaForeign          a schema of that name which Postroad did not make
    ├── RightMissing           the user may not create the schema
    ├── ExtensionMissing       an extension is missing and may not be created
    ├── ManifestBroken         the files of a room contradict each other
    └── ConnectionNotIdle      the migrator was given a connection inside a transaction
```
"""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg

from postroad.errors import PostroadError

__all__ = [
    "BinariesNotFound",
    "ConnectionNotIdle",
    "DataFolderRefused",
    "DatabaseError",
    "DatabaseUnavailable",
    "EmbeddedError",
    "ExtensionMissing",
    "ManifestBroken",
    "RightMissing",
    "SchemaBehind",
    "SchemaError",
    "SchemaForeign",
    "SchemaMissing",
    "SchemaNewer",
    "ServerInUse",
    "ServerNotStarted",
    "ServerTooOld",
    "ServerUserMissing",
    "raised_by",
]

Family = TypeVar("Family", bound=PostroadError)


class DatabaseError(PostroadError, code="database"):
    """Something about the database as such."""


class DatabaseUnavailable(
    DatabaseError, code="database_unavailable", kind="unavailable", retryable=True
):
    """The database does not answer; it may do so later."""


class ServerTooOld(DatabaseError, code="server_too_old", kind="refused"):
    """The server is older than Postroad supports."""


class EmbeddedError(DatabaseError, code="embedded"):
    """The embedded server."""


class BinariesNotFound(EmbeddedError, code="binaries_not_found", kind="unavailable"):
    """There is no PostgreSQL to run."""


class ServerUserMissing(EmbeddedError, code="server_user_missing", kind="unavailable"):
    """PostgreSQL refuses to run as root, and the system user for it cannot be made."""


class DataFolderRefused(EmbeddedError, code="data_folder_refused", kind="refused"):
    """The data folder belongs to another major version or cannot be used."""


class ServerNotStarted(EmbeddedError, code="server_not_started", kind="unavailable"):
    """The server could not be created or started."""


class ServerInUse(EmbeddedError, code="server_in_use", kind="refused", retryable=True):
    """Other processes use the server."""


class SchemaError(DatabaseError, code="schema"):
    """A room's schema and this Postroad do not fit together."""


class SchemaMissing(SchemaError, code="schema_missing", kind="not_found"):
    """The schema is not installed."""


class SchemaBehind(SchemaError, code="schema_behind", kind="refused"):
    """The schema lacks migrations that this Postroad needs."""


class SchemaNewer(SchemaError, code="schema_newer", kind="refused"):
    """The schema was installed or upgraded by a newer Postroad."""


class SchemaForeign(SchemaError, code="schema_foreign", kind="refused"):
    """A schema of that name exists, and Postroad did not install it."""


class RightMissing(SchemaError, code="right_missing", kind="refused"):
    """The user lacks a right that the install needs."""


class ExtensionMissing(SchemaError, code="extension_missing", kind="refused"):
    """An extension is missing and this user may not create it."""


class ManifestBroken(SchemaError, code="manifest_broken"):
    """The SQL files of a room contradict their manifest."""


class ConnectionNotIdle(SchemaError, code="connection_not_idle", kind="usage"):
    """The migrator needs a transaction of its own."""


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
