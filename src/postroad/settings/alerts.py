"""Settings of the alerts: channels, grouping, retries, watchers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from postroad.settings.values import Duration, Secret, Section

SeverityName = Literal["info", "warning", "error", "critical"]


class AlertsSettings(Section):
    """Alerts to the administrator."""

    channels: dict[str, Secret] = Field(default_factory=dict)
    """Where alerts go: names and URLs (`smtp://…`, any URL of Apprise, `file:/path` of one)."""
    least_severity: SeverityName = "warning"
    """The lowest severity to send: `info`, `warning`, `error` or `critical`. Default warning."""
    channel_severity: dict[str, SeverityName] = Field(default_factory=dict)
    """Another lowest severity for some channels, such as `critical` for SMS."""
    installation: str = "Postroad"
    """Prefix of each subject, in brackets, to distinguish installations. Default Postroad."""
    group_window: Duration = timedelta(seconds=5)
    """Alerts raised within this time share a notice. Default 5s."""
    quiet_window: Duration = timedelta(minutes=15)
    """The longest pause between two notices of a channel while alerts continue. Default 15m."""
    digest_interval: Duration = timedelta(days=1)
    """How often open alerts that are not acknowledged are sent again. Default 1d."""
    is_heartbeat: bool = False
    """Send the digest even when no alert is open, so that silence means trouble. Default false."""
    backoff: Duration = timedelta(seconds=5)
    """The delay after the first failed attempt; it doubles with each. Default 5s."""
    backoff_max: Duration = timedelta(minutes=15)
    """The longest delay between two attempts. Default 15m."""
    give_up_after: Duration = timedelta(days=3)
    """Age at which a notice is no longer retried. Default 3d."""
    send_timeout: Duration = timedelta(seconds=20)
    """How long a channel may be silent during an attempt. Default 20s."""
    lease: Duration = timedelta(minutes=2)
    """How long a sender holds a notice; longer than an attempt can take. Default 2m."""
    poll_interval: Duration = timedelta(seconds=1)
    """How often a sender checks for new alerts. Default 1s."""
    keep: Duration = timedelta(days=90)
    """How long cleared alerts and sent notices are kept. Default 90d."""
    watch_folders: tuple[Path, ...] = ()
    """Folders whose disks are watched in addition to the data folder."""
    watch_interval: Duration = timedelta(seconds=30)
    """How often disks, the clock and pauses are checked. Default 30s."""
    disk_least_free_percent: float = Field(default=10.0, gt=0, lt=100)
    """Free space below which a disk counts as nearly full; half of it is critical. Default 10."""
    clock_jump: Duration = timedelta(seconds=5)
    """A clock that is wrong by more than this has jumped. Default 5s."""
    pause_limit: Duration = timedelta(hours=1)
    """How long a queue or consumer of the bus may be paused without an alert. Default 1h."""
