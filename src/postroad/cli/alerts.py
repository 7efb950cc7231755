"""`postroad alerts`: lists and actions (from `alerts.resources`), channels, raise, clear, serve."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import click

from postroad.alerts import (
    AlertSender,
    ClockWatcher,
    DeliveryFailed,
    DiskWatcher,
    PauseWatcher,
    operations,
)
from postroad.alerts import resources as lists
from postroad.alerts.channel import open_channels, select_channels
from postroad.alerts.reporting import clear_alert, raise_alert
from postroad.cli.context import Application, command, run_service
from postroad.cli.derived import action_command, list_command
from postroad.cli.output import print_records
from postroad.cli.parts import PartContext
from postroad.postgres.calls import Connection
from postroad.service import Service, Together

NO_CHANNEL = (
    "no channel is configured; set one, for example\n"
    "  POSTROAD_ALERTS__CHANNELS__MAIL='smtp://mail.example.com?to=admin@example.com'"
)


@click.group()
def alerts() -> None:
    """Alerts: open problems, notices about them, and channels.

    Example: postroad alerts list
    """


list_alerts = list_command(lists.ALERTS, Application.run, "list", limit=100)
list_alerts.params.insert(
    1, click.Option(["--all", "show"], flag_value="all", help="Also cleared alerts.")
)
for one in (
    list_alerts,
    action_command(lists.ACK, Application.run),
    *(action_command(one, Application.run) for one in lists.HANDLING),
    list_command(lists.HANDLED, Application.run),
    list_command(lists.NOTICES, Application.run),
    action_command(lists.RETRY, Application.run),
):
    alerts.add_command(one)


@command(alerts)
@click.option("--channel", "names", multiple=True, help="Only this channel; may be repeated.")
def test(application: Application, names: tuple[str, ...], as_json: bool) -> None:
    """Send a test notice through every channel and report the outcome.

    Example: postroad alerts test --channel mail
    """
    settings = application.settings.alerts
    channels = open_channels(settings)
    chosen = select_channels(channels, names)

    async def send(connection: Connection) -> list[dict[str, Any]]:
        outcomes = []
        await operations.set_channels(connection, channels)
        for channel in chosen:
            outcome, error = "sent", None
            try:
                await operations.try_channel(connection, channel, settings)
            except DeliveryFailed as failure:
                outcome, error = "failed", str(failure)
            facts = {"channel": channel.name, "address": channel.address}
            outcomes.append({**facts, "outcome": outcome, "error": error})
        return outcomes

    outcomes = application.run(send, autocommit=True) if chosen else []
    print_records(outcomes, as_json=as_json, empty=NO_CHANNEL)
    if any(outcome["outcome"] != "sent" for outcome in outcomes):
        raise click.exceptions.Exit(1)


@command(alerts)
def channels(application: Application, as_json: bool) -> None:
    """List channels with their notices and their last error.

    Example: postroad alerts channels
    """
    configured = {one.name: one for one in open_channels(application.settings.alerts)}
    known = {row["name"]: row for row in application.run(lists.CHANNELS.all)}
    rows = []
    for name in sorted({*configured, *known}):
        channel, facts = configured.get(name), known.get(name, {})
        rows.append(
            {
                "channel": name,
                "address": channel.address if channel else None,
                "least_severity": channel.least_severity if channel else None,
                "is_configured": channel is not None,
                **{counted: facts.get(counted, 0) for counted in ("waiting", "sent", "given_up")},
                "last_sent_at": facts.get("last_sent_at"),
                "error": facts.get("error"),
            }
        )
    print_records(rows, as_json=as_json, empty=NO_CHANNEL)


@command(alerts, "raise")
@click.argument("key")
@click.argument("title")
@click.option("--severity", type=click.Choice(lists.SEVERITIES), default="error", show_default=True)
@click.option("--component", "--room", "component", default="operator", show_default=True,
              help="The reporting component. --room is deprecated.")  # fmt: skip
@click.option("--text", default="", help="Details.")
def raise_(
    application: Application, key: str, title: str, severity: Any, component: str, text: str
) -> None:
    """Raise an alert from a script.

    Example: postroad alerts raise backup/nightly "the backup failed" --severity critical
    """
    with application.connection() as connection:
        raise_alert(connection, key, room=component, severity=severity, title=title, text=text)


@command(alerts)
@click.argument("key")
def clear(application: Application, key: str) -> None:
    """Clear an alert from a script.

    Example: postroad alerts clear backup/nightly
    """
    with application.connection() as connection:
        clear_alert(connection, key)


@command(alerts)
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after this time.")
def serve(application: Application, seconds: float | None) -> None:
    """Run a sender; `postroad up` already runs one. Several may run.

    Example: postroad alerts serve
    """
    settings = application.settings
    names = ", ".join(settings.alerts.channels) or "no channel"
    with application.database() as dsn:
        sender = AlertSender(dsn, settings.alerts, is_pooled=settings.database.is_pooled)
        announce = partial(click.echo, f"sending to {names}", err=True)
        asyncio.run(run_service(sender, announce, seconds))


def service(context: PartContext) -> Service:
    """Create the sender and the watchers."""
    dsn, settings = context.dsn, context.application.settings
    given, every = settings.alerts, settings.alerts.watch_interval
    folders = [context.application.data_folder, *given.watch_folders]
    least = given.disk_least_free_percent
    return Together(
        "alerts",
        [
            AlertSender(dsn, given, is_pooled=settings.database.is_pooled),
            DiskWatcher(dsn, folders, least_free_percent=least, interval=every),
            ClockWatcher(dsn, jump=given.clock_jump, interval=every),
            PauseWatcher(dsn, limit=given.pause_limit, interval=every),
        ],
    )
