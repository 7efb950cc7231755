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
]


class DatabaseError(PostroadError):
    """Something about the database as such."""

    code = "database"


class DatabaseUnavailable(DatabaseError):
    """The database does not answer; it may do so later."""

    code = "database_unavailable"
    kind = "unavailable"
    retryable = True


class ServerTooOld(DatabaseError):
    """The server is older than Postroad supports."""

    code = "server_too_old"
    kind = "refused"


class EmbeddedError(DatabaseError):
    """The embedded server."""

    code = "embedded"


class BinariesNotFound(EmbeddedError):
    """There is no PostgreSQL to run."""

    code = "binaries_not_found"
    kind = "unavailable"


class ServerUserMissing(EmbeddedError):
    """PostgreSQL refuses to run as root, and the system user for it cannot be made."""

    code = "server_user_missing"
    kind = "unavailable"


class DataFolderRefused(EmbeddedError):
    """The data folder belongs to another major version or cannot be used."""

    code = "data_folder_refused"
    kind = "refused"


class ServerNotStarted(EmbeddedError):
    """The server could not be created or started."""

    code = "server_not_started"
    kind = "unavailable"


class ServerInUse(EmbeddedError):
    """Other processes use the server."""

    code = "server_in_use"
    kind = "refused"
    retryable = True


class SchemaError(DatabaseError):
    """A room's schema and this Postroad do not fit together."""

    code = "schema"


class SchemaMissing(SchemaError):
    """The schema is not installed."""

    code = "schema_missing"
    kind = "not_found"


class SchemaBehind(SchemaError):
    """The schema lacks migrations that this Postroad needs."""

    code = "schema_behind"
    kind = "refused"


class SchemaNewer(SchemaError):
    """The schema was installed or upgraded by a newer Postroad."""

    code = "schema_newer"
    kind = "refused"


class SchemaForeign(SchemaError):
    """A schema of that name exists, and Postroad did not install it."""

    code = "schema_foreign"
    kind = "refused"


class RightMissing(SchemaError):
    """The user lacks a right that the install needs."""

    code = "right_missing"
    kind = "refused"


class ExtensionMissing(SchemaError):
    """An extension is missing and this user may not create it."""

    code = "extension_missing"
    kind = "refused"


class ManifestBroken(SchemaError):
    """The SQL files of a room contradict their manifest."""

    code = "manifest_broken"


class ConnectionNotIdle(SchemaError):
    """The migrator needs a transaction of its own."""

    code = "connection_not_idle"
    kind = "usage"
