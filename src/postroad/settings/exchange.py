"""Settings of the exchange."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from postroad.settings.values import Duration, Section

__all__ = ["ExchangeSettings"]

STARTED_TIMEOUT_DEFAULT = timedelta(minutes=10)
READY_TIMEOUT_DEFAULT = timedelta(minutes=10)
SWEEP_INTERVAL_DEFAULT = timedelta(seconds=5)
DEFER_DELAY_DEFAULT = timedelta(seconds=60)
LOG_KEPT_DEFAULT = timedelta(days=92)
RETENTION_INTERVAL_DEFAULT = timedelta(hours=1)
EVENTS_KEPT_DEFAULT = timedelta(days=7)
IDLE_RETRY_DEFAULT = timedelta(seconds=10)


class ExchangeSettings(Section):
    """The exchange: files handed to ERP instances in two-phase processes."""

    root: Path | None = None
    """The root folder of the mailboxes. Default: `exchange` in the data folder."""

    host: str = "127.0.0.1"
    """The address to listen on. Default 127.0.0.1."""

    port: int = Field(default=8420, ge=0, le=65535)
    """The port to listen on; 0 takes a free one. Default 8420."""

    creates_databases: bool = True
    """Whether the first message makes its database known. Default true."""

    started_timeout: Duration = STARTED_TIMEOUT_DEFAULT
    """How long a process may be STARTED before its files are handed out again. Default 10m."""

    ready_timeout: Duration = READY_TIMEOUT_DEFAULT
    """How long a process may be READY_TO_COMMIT before it is in doubt. Default 10m."""

    sweep_interval: Duration = SWEEP_INTERVAL_DEFAULT
    """How often time-outs, pending moves and the disk are looked at. Default 5s."""

    defer_delay: Duration = DEFER_DELAY_DEFAULT
    """When a deferred file comes again, unless the ERP says otherwise. Default 60s."""

    idle_retry: Duration = IDLE_RETRY_DEFAULT
    """When an instance that found nothing is asked to look again. Default 10s."""

    suspect_after: int = Field(default=5, ge=1)
    """A message that failed this often is offered alone, then parked. Default 5."""

    failed_policy: Literal["go_on", "wait"] = "go_on"
    """Whether what follows a parked message of the same sender goes on or waits. Default go_on."""

    log_kept: Duration = LOG_KEPT_DEFAULT
    """How long files stay in Log, and ended processes known. Default 92d (3 months)."""

    retention_interval: Duration = RETENTION_INTERVAL_DEFAULT
    """How often Log is cleaned, besides at the start. Default 1h."""

    events_kept: Duration = EVENTS_KEPT_DEFAULT
    """When an event in the queue exchange_events that nobody consumed expires. Default 7d."""

    max_files: int = Field(default=100, ge=1, le=10_000)
    """Most files of one process; the smaller of this and the client's wish counts. Default 100."""

    max_bytes: int = Field(default=20 * 1024 * 1024, ge=1)
    """Most bytes of one process; a larger file is handed out alone. Default 20 MiB."""

    inline_bytes: int = Field(default=64 * 1024, ge=0)
    """Files up to this size are sent in the answer, larger ones by link. Default 64 KiB."""

    body_limit: int = Field(default=20 * 1024 * 1024, ge=1024)
    """The largest JSON body; more is 413. Default 20 MiB."""

    upload_limit: int = Field(default=2 * 1024 * 1024 * 1024, ge=1024)
    """The largest uploaded reply; more is 413. Default 2 GiB."""

    file_threads: int = Field(default=24, ge=1, le=256)
    """How many files are written or moved at once. Default 24."""

    allows_network_root: bool = False
    """Whether the root may lie on a network file system, where locks may lie. Default false."""
