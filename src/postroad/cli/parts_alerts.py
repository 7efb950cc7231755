"""The service of alerts: the sender, and the watchers of disk, clock and pauses."""

from __future__ import annotations

from postroad.alerts import AlertSender, ClockWatcher, DiskWatcher, PauseWatcher
from postroad.cli.parts import PartContext
from postroad.cli.together import Together
from postroad.postgres.server_user import data_folder_default
from postroad.service import Service


def alerts(context: PartContext) -> Service:
    """Make the sender and the watchers."""
    settings = context.application.settings
    folder = settings.data_folder or data_folder_default()
    return Together(
        "alerts",
        [
            AlertSender(context.dsn, settings.alerts, is_pooled=settings.database.is_pooled),
            DiskWatcher(
                context.dsn,
                [folder, *settings.alerts.watch_folders],
                least_free_percent=settings.alerts.disk_least_free_percent,
                interval=settings.alerts.watch_interval,
            ),
            ClockWatcher(
                context.dsn,
                jump=settings.alerts.clock_jump,
                interval=settings.alerts.watch_interval,
            ),
            PauseWatcher(
                context.dsn,
                limit=settings.alerts.pause_limit,
                interval=settings.alerts.watch_interval,
            ),
        ],
    )
