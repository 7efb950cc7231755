"""Settings of the exchange."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from postroad.settings.server import S3Settings
from postroad.settings.values import Duration, Port

Root = Annotated[
    Annotated[str, StringConstraints(pattern=r"^s3://[^/]+(/.*)?$")] | Path,
    Field(union_mode="left_to_right"),
]


class ExchangeSettings(S3Settings):
    """The exchange: two-phase hand-over of files to ERP instances."""

    root: Root | None = None
    """Where files are kept: a folder or `s3://bucket/prefix`. Default: `exchange` in the data
    folder."""
    second_root: Root | None = None
    """A store of the other kind, whose files a migration copies to the root. Default: none."""
    copies_per_second: int = Field(default=100, ge=1)
    """The maximum number of files that a migration copies per second. Default 100."""
    host: str = "127.0.0.1"
    """The address to listen on. Default 127.0.0.1."""
    port: Port = 8420
    """The port to listen on; 0 takes a free one. Default 8420."""
    creates_databases: bool = True
    """Whether the first message registers its database. Default true."""
    started_timeout: Duration = timedelta(minutes=10)
    """How long a process may be STARTED before its files are handed out again. Default 10m."""
    ready_timeout: Duration = timedelta(minutes=10)
    """How long a process may be READY_TO_COMMIT before it is in doubt. Default 10m."""
    sweep_interval: Duration = timedelta(seconds=5)
    """How often timeouts, pending moves and the disk are checked. Default 5s."""
    defer_delay: Duration = timedelta(seconds=60)
    """When a deferred file is handed out again, unless the ERP names a time. Default 60s."""
    idle_retry: Duration = timedelta(seconds=10)
    """When an instance that got no files should ask again. Default 10s."""
    suspect_after: int = Field(default=5, ge=1)
    """A message that failed this often is offered alone, then parked. Default 5."""
    failed_policy: Literal["go_on", "wait"] = "go_on"
    """Whether later messages of the sender of a parked one continue or wait. Default go_on."""
    log_kept: Duration = timedelta(days=92)
    """How long files stay in Log, and ended processes are kept. Default 92d (3 months)."""
    retention_interval: Duration = timedelta(hours=1)
    """How often Log is cleaned, besides at the start. Default 1h."""
    events_kept: Duration = timedelta(days=7)
    """When an unconsumed event in the queue exchange_events expires. Default 7d."""
    max_files: int = Field(default=100, ge=1, le=10_000)
    """Most files of one process; the smaller of this and the client's limit counts. Default 100."""
    max_bytes: int = Field(default=20 * 1024 * 1024, ge=1)
    """Most bytes of one process; a larger file is handed out alone. Default 20 MiB."""
    inline_bytes: int = Field(default=64 * 1024, ge=0)
    """Files up to this size are sent in the answer, larger ones by link. Default 64 KiB."""
    body_limit: int = Field(default=20 * 1024 * 1024, ge=1024)
    """The largest JSON body; more is 413. Default 20 MiB."""
    upload_limit: int = Field(default=2 * 1024 * 1024 * 1024, ge=1024)
    """The largest uploaded reply; more is 413. Default 2 GiB."""
    file_threads: int = Field(default=24, ge=1, le=256)
    """The number of files that are written or moved in parallel. Default 24."""
    orphan_age: Duration = timedelta(days=7)
    """Age after which an object in an S3 store that no message refers to is removed. Default 7d."""
    allows_network_root: bool = False
    """Whether the root may be on a network file system, whose locks may be unreliable. Default
    false."""
