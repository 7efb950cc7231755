"""Settings of the console."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from postroad.settings.values import Duration, Secret, Section


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
