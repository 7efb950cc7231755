"""The service of alerts: the sender, and the watchers of disk, clock and pauses."""

from __future__ import annotations

from postroad.alerts import AlertSender, ClockWatcher, DiskWatcher, PauseWatcher
from postroad.cli.parts import PartContext
from postroad.cli.together import Together
from postroad.postgres.server_user import data_folder_default
from postroad.service import Service


def alerts(context: PartContext) -> Service:
    """Make the sender and the watchers."""
    dsn, settings = context.dsn, context.application.settings
    alerts, every = settings.alerts, settings.alerts.watch_interval
    folders = [settings.data_folder or data_folder_default(), *alerts.watch_folders]
    least = alerts.disk_least_free_percent
    return Together(
        "alerts",
        [
            AlertSender(dsn, alerts, is_pooled=settings.database.is_pooled),
            DiskWatcher(dsn, folders, least_free_percent=least, interval=every),
            ClockWatcher(dsn, jump=alerts.clock_jump, interval=every),
            PauseWatcher(dsn, limit=alerts.pause_limit, interval=every),
        ],
    )
