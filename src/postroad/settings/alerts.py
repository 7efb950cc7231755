"""Settings of the alerts: where they go, how they are grouped and retried, what is watched."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr

from postroad.settings.values import Duration, Section

__all__ = ["AlertsSettings", "ChannelUrl"]

GROUP_WINDOW_DEFAULT = timedelta(seconds=5)
QUIET_WINDOW_DEFAULT = timedelta(minutes=15)
DIGEST_INTERVAL_DEFAULT = timedelta(days=1)
BACKOFF_DEFAULT = timedelta(seconds=5)
BACKOFF_MAX_DEFAULT = timedelta(minutes=15)
GIVE_UP_AFTER_DEFAULT = timedelta(days=3)
LEASE_DEFAULT = timedelta(minutes=2)
SEND_TIMEOUT_DEFAULT = timedelta(seconds=20)
POLL_INTERVAL_DEFAULT = timedelta(seconds=1)
KEEP_DEFAULT = timedelta(days=90)
WATCH_INTERVAL_DEFAULT = timedelta(seconds=30)
CLOCK_JUMP_DEFAULT = timedelta(seconds=5)


def _channel_url(value: Any) -> Any:
    """Accept a URL, or `file:/path` for one kept in a file."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and text.startswith("file:"):
        path = Path(text.removeprefix("file:"))
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as failure:
            raise ValueError(f"cannot read {path}: {failure.strerror}") from failure
    return text


ChannelUrl = Annotated[SecretStr, BeforeValidator(_channel_url)]
SeverityName = Literal["info", "warning", "error", "critical"]


class AlertsSettings(Section):
    """Alerts to the administrator."""

    channels: dict[str, ChannelUrl] = Field(default_factory=dict)
    """Where alerts go: names and URLs (`smtp://…`, any URL of Apprise, `file:/path` of one)."""

    least_severity: SeverityName = "warning"
    """What is told at least: `info`, `warning`, `error` or `critical`. Default warning."""

    channel_severity: dict[str, SeverityName] = Field(default_factory=dict)
    """Another least severity for some channels, such as `critical` for SMS."""

    installation: str = "Postroad"
    """What stands in brackets before each subject, to tell installations apart."""

    group_window: Duration = GROUP_WINDOW_DEFAULT
    """What comes within this time shares a notice. Default 5s."""

    quiet_window: Duration = QUIET_WINDOW_DEFAULT
    """The longest pause between two notices of a channel while things go on. Default 15m."""

    digest_interval: Duration = DIGEST_INTERVAL_DEFAULT
    """How often what is still open and not acknowledged is told again. Default 1d."""

    is_heartbeat: bool = False
    """Send the digest even when nothing is open, so that silence means trouble. Default false."""

    backoff: Duration = BACKOFF_DEFAULT
    """The pause after the first failed attempt; it doubles with each. Default 5s."""

    backoff_max: Duration = BACKOFF_MAX_DEFAULT
    """The longest pause between two attempts. Default 15m."""

    give_up_after: Duration = GIVE_UP_AFTER_DEFAULT
    """How old a notice may grow before it is not tried any more. Default 3d."""

    send_timeout: Duration = SEND_TIMEOUT_DEFAULT
    """How long the other side may be silent during an attempt. Default 20s."""

    lease: Duration = LEASE_DEFAULT
    """How long a sender has a notice to itself; longer than an attempt can take. Default 2m."""

    poll_interval: Duration = POLL_INTERVAL_DEFAULT
    """How often a sender looks for something to tell. Default 1s."""

    keep: Duration = KEEP_DEFAULT
    """How long cleared alerts and sent notices are remembered. Default 90d."""

    watch_folders: tuple[Path, ...] = ()
    """Folders whose disks are watched besides the data folder."""

    watch_interval: Duration = WATCH_INTERVAL_DEFAULT
    """How often disks and clock are looked at. Default 30s."""

    disk_least_free_percent: float = Field(default=10.0, gt=0, lt=100)
    """Free space below which a disk counts as nearly full; half of it is critical. Default 10."""

    clock_jump: Duration = CLOCK_JUMP_DEFAULT
    """A clock that is wrong by more than this has jumped. Default 5s."""
