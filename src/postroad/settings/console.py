"""Settings of the HTTP server that all rooms share, and of the console."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from postroad.settings.values import Duration, Section

__all__ = ["ConsoleSettings", "HttpSettings", "OidcSettings"]

PORT_DEFAULT = 8080
SESSION_LIFETIME_DEFAULT = timedelta(hours=12)
LOGIN_WINDOW_DEFAULT = timedelta(minutes=5)
REFRESH_DEFAULT = timedelta(seconds=2)

Role = Literal["viewer", "operator", "admin"]


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


def _proxy(value: str) -> str:
    """Accept an address or a network; anything else would never match."""
    ip_network(value)
    return value


Proxy = Annotated[str, AfterValidator(_proxy)]
Secret = Annotated[SecretStr, BeforeValidator(_secret)]


class HttpSettings(Section):
    """The one HTTP server: console, interfaces of the rooms, metrics."""

    host: str = "127.0.0.1"
    """Address to listen on; anything but loopback is for others to reach. Default 127.0.0.1."""

    port: int = Field(default=PORT_DEFAULT, ge=0, le=65535)
    """Port to listen on; 0 takes a free one. Default 8080."""

    public_url: str | None = None
    """How browsers reach it through a proxy, such as https://road.example. Default: directly."""

    allowed_hosts: tuple[str, ...] = ()
    """Further names under which clients reach the HTTP services, such as road.example; `*` accepts
    every name, which is safe only behind a proxy that checks it. Addresses, localhost, the
    machine's name and the host of `public_url` are always accepted. Default: none."""

    tls_cert: Path | None = None
    """A file with the certificate, and those of its issuers, in PEM: serve HTTPS instead of HTTP.
    Default: HTTP, for this machine or behind a proxy that ends TLS."""

    tls_key: Path | None = None
    """A file with the key of `tls_cert` in PEM. Default: the key is in `tls_cert`."""

    metrics_token: Secret | None = None
    """Token that `/metrics` asks for, or `file:/path` of one. Default: none; then only clients on
    this machine that do not come through a proxy may read it."""

    trusted_proxies: tuple[Proxy, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded headers are believed. Default: none."""


class OidcSettings(Section):
    """Signing in through OpenID Connect; off until an issuer is named."""

    issuer: str | None = None
    """URL of the provider; its /.well-known/openid-configuration is read. Default: none."""

    client_id: str = ""
    """The console's name at the provider."""

    client_secret: Secret | None = None
    """The console's secret at the provider, or `file:/path` of one."""

    role_claim: str = "postroad_role"
    """The claim that holds viewer, operator or admin, alone or in a list. Default postroad_role."""

    role_default: Role | None = None
    """The role of people whose claim says nothing. Default: they are refused."""


class ConsoleSettings(Section):
    """The operators' web page."""

    session_lifetime: Duration = SESSION_LIFETIME_DEFAULT
    """How long somebody stays signed in. Default 12h."""

    login_attempts: int = Field(default=10, ge=1)
    """Failed logins allowed from one address within the window. Default 10."""

    login_window: Duration = LOGIN_WINDOW_DEFAULT
    """How long failed logins are counted. Default 5m."""

    refresh: Duration = REFRESH_DEFAULT
    """How often an open page looks for news. Default 2s."""

    oidc: OidcSettings = OidcSettings()
