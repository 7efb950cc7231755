"""Settings of the intake: the store, the broker, transfers, notices, the web API."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pydantic import Field

from postroad.settings.server import S3Settings
from postroad.settings.values import Duration, Port, Secret

MIB = 1024 * 1024


class IntakeSettings(S3Settings):
    """Files from SFTP servers."""

    store: str | None = None
    """Where files go: `s3://bucket/prefix` or a folder. Default: `intake` in the data folder."""
    broker: Secret | None = None
    """Celery's broker: `mbus://…` or `amqp://…`. Default: the bus in the database in use."""
    discover_interval: Duration = timedelta(seconds=30)
    """How often a server without an interval of its own is listed. Default 30s."""
    reconcile_interval: Duration = timedelta(seconds=15)
    """How often files without a worker are queued again. Default 15s."""
    lease: Duration = timedelta(seconds=15)
    """How long a worker without a heartbeat keeps its files. Default 15s."""
    connect_timeout: Duration = timedelta(seconds=10)
    """How long an SFTP server may take to answer before it counts as unreachable. Default 10s."""
    max_attempts: int = Field(default=8, ge=1, le=1000)
    """Attempts per file before it fails; those on an unreachable server do not count. Default 8."""
    part_bytes: int = Field(default=5 * MIB, ge=5 * MIB, le=512 * MIB)
    """Size of the parts of an upload; larger where 10,000 parts would not do. Default 5 MiB."""
    parts_in_memory: int = Field(default=3, ge=2, le=64)
    """The most parts of one transfer that are held in memory. Default 3."""
    uploads: int = Field(default=4, ge=1, le=64)
    """Parallel calls to the store per worker process. Default 4."""
    small_bytes: int = Field(default=MIB, ge=0, le=16 * MIB)
    """Files up to this size are stored by one call, many of them per task. Default 1 MiB."""
    pipeline: int = Field(default=8, ge=1, le=64)
    """Small files in flight on one connection. Default 8."""
    batch_files: int = Field(default=200, ge=1, le=10_000)
    """The most small files in one task. Default 200."""
    temporary_folder: Path | None = None
    """Folder for the transfer mode `temporary_file`. Default: in the data folder."""
    orphan_age: Duration = timedelta(days=1)
    """Age after which an upload in the store that belongs to no file is aborted. Default 1d."""
    amqp_url: Secret | None = None
    """RabbitMQ that receives a notice per file, or `file:/path` of its URL. Default: none."""
    amqp_exchange: str = "file_events"
    """Exchange to which notices are published. Default file_events."""
    amqp_routing_key: str = "file.processed"
    """Routing key of the notices. Default file.processed."""
    amqp_queue: str | None = "file_processed_queue"
    """Queue that is created and bound, so that no notice is lost. Default file_processed_queue."""
    amqp_fields: tuple[str, ...] = ("file_id", "minio_path")
    """Fields of a notice's body; `*` for all there are. Default file_id and minio_path."""
    host: str = "127.0.0.1"
    """Address of the web API. Default 127.0.0.1."""
    port: Port = 8140
    """Port of the web API; 0 takes a free one. Default 8140."""
    token: Secret | None = None
    """Bearer token of the web API, or `file:/path`. Default: `intake.token` in the data folder."""
