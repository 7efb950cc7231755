"""Settings of the intake: the store, the broker, how transfers run, the notice, the web API."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr

from postroad.settings.values import Duration, Section

__all__ = ["IntakeSettings"]

MIB = 1024 * 1024
DISCOVER_INTERVAL_DEFAULT = timedelta(seconds=30)
RECONCILE_INTERVAL_DEFAULT = timedelta(seconds=15)
LEASE_DEFAULT = timedelta(seconds=15)
CONNECT_TIMEOUT_DEFAULT = timedelta(seconds=10)
ORPHAN_AGE_DEFAULT = timedelta(days=1)


def _secret(value: Any) -> Any:
    """Accept a secret, or `file:/path` for one kept in a file."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and text.startswith("file:"):
        path = Path(text.removeprefix("file:"))
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as failure:
            raise ValueError(f"cannot read {path}: {failure.strerror}") from failure
    return text


Secret = Annotated[SecretStr, BeforeValidator(_secret)]


class IntakeSettings(Section):
    """Files from SFTP servers."""

    store: str | None = None
    """Where files go: `s3://bucket/prefix` or a folder. Default: `intake` in the data folder."""

    s3_endpoint: str | None = None
    """Address of the S3-compatible store, such as `http://127.0.0.1:9000`. Default: Amazon's."""

    s3_access_key: Secret | None = None
    """Access key of the store, or `file:/path` of one. Default: as the AWS tools find it."""

    s3_secret_key: Secret | None = None
    """Secret key of the store, or `file:/path` of one. Default: as the AWS tools find it."""

    s3_region: str = "us-east-1"
    """Region of the store. Default us-east-1."""

    s3_checksums: Literal["when_required", "when_supported"] = "when_required"
    """Whether the client library adds checksums that some stores refuse. Default when_required."""

    broker: Secret | None = None
    """Celery's broker: `mbus://…` or `amqp://…`. Default: the bus in the database in use."""

    discover_interval: Duration = DISCOVER_INTERVAL_DEFAULT
    """How often a server without an interval of its own is looked at. Default 30s."""

    reconcile_interval: Duration = RECONCILE_INTERVAL_DEFAULT
    """How often files that nobody works on any more are taken up again. Default 15s."""

    lease: Duration = LEASE_DEFAULT
    """How long a file stays with a worker that gives no sign of life. Default 15s."""

    connect_timeout: Duration = CONNECT_TIMEOUT_DEFAULT
    """How long an SFTP server may take to answer before it counts as unreachable. Default 10s."""

    max_attempts: int = Field(default=8, ge=1, le=1000)
    """Tries of one file before it counts as failed; a server or store that is away costs none."""

    part_bytes: int = Field(default=5 * MIB, ge=5 * MIB, le=512 * MIB)
    """Size of the parts of an upload; grows where 10,000 parts would not do. Default 5 MiB."""

    parts_in_memory: int = Field(default=3, ge=2, le=64)
    """Parts of one transfer that are held in memory at most. Default 3."""

    uploads: int = Field(default=4, ge=1, le=64)
    """Calls to the store at once per worker process, whatever the sources do. Default 4."""

    small_bytes: int = Field(default=MIB, ge=0, le=16 * MIB)
    """Files up to this size are stored by one call, many of them per task. Default 1 MiB."""

    pipeline: int = Field(default=8, ge=1, le=64)
    """Small files in flight on one connection. Default 8."""

    batch_files: int = Field(default=200, ge=1, le=10_000)
    """Small files in one task at most. Default 200."""

    temporary_folder: Path | None = None
    """Where servers with the way `temporary_file` keep files. Default: in the data folder."""

    orphan_age: Duration = ORPHAN_AGE_DEFAULT
    """Age after which an upload in the store that belongs to no file is aborted. Default 1d."""

    amqp_url: Secret | None = None
    """RabbitMQ that is told of each file, or `file:/path` of its URL. Default: nobody."""

    amqp_exchange: str = "file_events"
    """Exchange to which notices are published. Default file_events."""

    amqp_routing_key: str = "file.processed"
    """Routing key of the notices. Default file.processed."""

    amqp_queue: str | None = "file_processed_queue"
    """Queue that is made and bound, so that no notice is lost. Default file_processed_queue."""

    amqp_fields: tuple[str, ...] = ("file_id", "minio_path")
    """Fields of a notice's body; `*` for all there are. Default file_id and minio_path."""

    host: str = "127.0.0.1"
    """Where the web API listens. Default 127.0.0.1."""

    port: int = Field(default=8140, ge=0, le=65535)
    """Port of the web API; 0 takes a free one. Default 8140."""

    token: Secret | None = None
    """Bearer token of the web API, or `file:/path`. Default: `intake.token` in the data folder."""
