"""`postroad alerts`: lists and actions (from `alerts.resources`), channels, raise, clear, serve."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from postroad.alerts import AlertSender, DeliveryFailed, operations
from postroad.alerts.channel import Channel, open_channels, select_channels
from postroad.alerts.reporting import clear_alert, raise_alert
from postroad.alerts.resources import ACK, ALERTS, CHANNELS, NOTICES, RETRY, SEVERITIES
from postroad.cli.context import Application, pass_application, stop_event
from postroad.cli.derived import action_command, list_command
from postroad.cli.output import json_option, print_json, print_table
from postroad.postgres.connections import connect_async
from postroad.settings.alerts import AlertsSettings


@click.group()
def alerts() -> None:
    """Alerts: open problems, notices about them, and channels.

    Example: postroad alerts list
    """


list_alerts = list_command(ALERTS, Application.run, "list", limit=100)
list_alerts.params.insert(
    1, click.Option(["--all", "show"], flag_value="all", help="Also cleared alerts.")
)
for command in (
    list_alerts,
    action_command(ACK, Application.run),
    list_command(NOTICES, Application.run),
    action_command(RETRY, Application.run),
):
    alerts.add_command(command)


@alerts.command()
@click.option("--channel", "names", multiple=True, help="Only this channel; may be repeated.")
@json_option
@pass_application
@click.pass_context
def test(
    ctx: click.Context, application: Application, names: tuple[str, ...], as_json: bool
) -> None:
    """Send a test notice through every channel and report the outcome.

    Example: postroad alerts test --channel mail
    """
    settings = application.settings.alerts
    channels = open_channels(settings)
    chosen = select_channels(channels, names)
    if not chosen:
        _print_no_channels(as_json)
        return
    with application.database() as dsn:
        outcomes = asyncio.run(_test(dsn, channels, chosen, settings))
    if as_json:
        print_json(outcomes)
    else:
        print_table(
            ("channel", "address", "outcome", "error"), [list(o.values()) for o in outcomes]
        )
    if any(outcome["outcome"] != "sent" for outcome in outcomes):
        ctx.exit(1)


async def _test(
    dsn: str, channels: list[Channel], chosen: list[Channel], settings: AlertsSettings
) -> list[dict[str, Any]]:
    outcomes = []
    async with await connect_async(dsn, autocommit=True) as connection:
        await operations.set_channels(connection, channels)
        for channel in chosen:
            outcome, error = "sent", None
            try:
                await operations.try_channel(connection, channel, settings)
            except DeliveryFailed as failure:
                outcome, error = "failed", str(failure)
            outcomes.append(
                {
                    "channel": channel.name,
                    "address": channel.address,
                    "outcome": outcome,
                    "error": error,
                }
            )
    return outcomes


@alerts.command()
@json_option
@pass_application
def channels(application: Application, as_json: bool) -> None:
    """List channels with their notices and their last error.

    Example: postroad alerts channels
    """
    configured = {one.name: one for one in open_channels(application.settings.alerts)}
    known = {row["name"]: row for row in application.run(CHANNELS.all)}
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
    if as_json:
        print_json(rows)
    elif not rows:
        _print_no_channels(as_json)
    else:
        print_table([name.replace("_", " ") for name in rows[0]], [list(r.values()) for r in rows])


def _print_no_channels(as_json: bool) -> None:
    if as_json:
        print_json([])
    click.echo(
        "no channel is configured; set one, for example\n"
        "  POSTROAD_ALERTS__CHANNELS__MAIL='smtp://mail.example.com?to=admin@example.com'",
        err=True,
    )


@alerts.command("raise")
@click.argument("key")
@click.argument("title")
@click.option("--severity", type=click.Choice(SEVERITIES), default="error", show_default=True)
@click.option("--room", default="operator", show_default=True, help="The reporting component.")
@click.option("--text", default="", help="Details.")
@pass_application
def raise_(
    application: Application, key: str, title: str, severity: Any, room: str, text: str
) -> None:
    """Raise an alert from a script.

    Example: postroad alerts raise backup/nightly "the backup failed" --severity critical
    """
    with application.connection() as connection:
        raise_alert(connection, key, room=room, severity=severity, title=title, text=text)


@alerts.command()
@click.argument("key")
@pass_application
def clear(application: Application, key: str) -> None:
    """Clear an alert from a script.

    Example: postroad alerts clear backup/nightly
    """
    with application.connection() as connection:
        clear_alert(connection, key)


@alerts.command()
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after this time.")
@pass_application
def serve(application: Application, seconds: float | None) -> None:
    """Run a sender; `postroad up` already runs one. Several may run.

    Example: postroad alerts serve
    """
    with application.database() as dsn:
        asyncio.run(_serve(application, dsn, seconds))


async def _serve(application: Application, dsn: str, seconds: float | None) -> None:
    stopping = stop_event()
    settings = application.settings
    sender = AlertSender(dsn, settings.alerts, is_pooled=settings.database.is_pooled)
    async with sender:
        click.echo(f"sending to {', '.join(settings.alerts.channels) or 'no channel'}", err=True)
        try:
            async with asyncio.timeout(seconds):
                await stopping.wait()
        except TimeoutError:
            return
