"""`postroad alerts`: open problems, their notices, and the channels."""

from __future__ import annotations

import asyncio
import getpass
import signal
from typing import Any

import click

from postroad.alerts import AlertSender, DeliveryFailed, calls, operations, status
from postroad.alerts.channel import Channel, open_channels, select_channels
from postroad.alerts.reporting import clear_alert, raise_alert
from postroad.cli.bus_output import print_facts
from postroad.cli.context import Application, pass_application
from postroad.cli.output import json_option, print_json, print_table
from postroad.postgres.connections import connect_async
from postroad.settings.alerts import AlertsSettings

SEVERITIES = ("info", "warning", "error", "critical")


@click.group()
def alerts() -> None:
    """Alerts: open problems, their notices, and the channels.

    Example: postroad alerts list
    """


@alerts.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also those that are cleared.")
@click.option("--limit", default=100, show_default=True, help="At most so many.")
@json_option
@pass_application
def list_alerts(application: Application, is_all: bool, limit: int, as_json: bool) -> None:
    """List the alerts that are open, the latest first.

    Example: postroad alerts list --all --json
    """
    with application.connection() as connection:
        found = status.list_alerts(connection, is_open=not is_all, limit=limit)
    columns = ["severity", "key", "title", "count", "raised_at", "last_at", "acked_by", "told"]
    print_facts(
        found,
        as_json=as_json,
        empty="nothing was ever raised" if is_all else "nothing is wrong",
        columns=[*columns, "cleared_at"] if is_all else columns,
    )


@alerts.command()
@click.argument("keys", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All that are open.")
@click.option("--by", help="Who; default: the user of this system.")
@json_option
@pass_application
def ack(
    application: Application, keys: tuple[str, ...], is_all: bool, by: str | None, as_json: bool
) -> None:
    """Acknowledge alerts: no more reminders are sent.

    Example: postroad alerts ack exchange/in_doubt/9f2c
    """
    if bool(keys) == is_all:
        raise click.UsageError("name the keys, or give --all")
    who = by or getpass.getuser()
    with application.connection() as connection:
        count = sum(operations.ack(connection, key, by=who) for key in keys or (None,))
    if as_json:
        print_json({"acked": count, "by": who})
    else:
        click.echo(f"{count} acknowledged")


@alerts.command()
@click.option("--channel", "names", multiple=True, help="Only this one; may be repeated.")
@json_option
@pass_application
@click.pass_context
def test(
    ctx: click.Context, application: Application, names: tuple[str, ...], as_json: bool
) -> None:
    """Send a test notice through every channel and report whether it was accepted.

    Example: postroad alerts test --channel mail
    """
    settings = application.settings.alerts
    channels = open_channels(settings)
    chosen = select_channels(channels, names)
    if not chosen:
        _explain_configuration(as_json)
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
        await calls.run_async(
            connection,
            calls.SET_CHANNELS,
            (
                [channel.name for channel in channels],
                [channel.kind for channel in channels],
                [channel.least_severity for channel in channels],
            ),
        )
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
    """List where alerts go and how each channel does.

    Example: postroad alerts channels
    """
    configured = {one.name: one for one in open_channels(application.settings.alerts)}
    with application.connection() as connection:
        known = {one.name: one for one in status.list_channels(connection)}
    rows = []
    for name in sorted({*configured, *known}):
        channel, facts = configured.get(name), known.get(name)
        rows.append(
            {
                "channel": name,
                "address": channel.address if channel else None,
                "least_severity": channel.least_severity if channel else None,
                "is_configured": channel is not None,
                "waiting": facts.waiting if facts else 0,
                "sent": facts.sent if facts else 0,
                "given_up": facts.given_up if facts else 0,
                "last_sent_at": facts.last_sent_at if facts else None,
                "error": facts.error if facts else None,
            }
        )
    if as_json:
        print_json(rows)
    elif not rows:
        _explain_configuration(as_json)
    else:
        print_table([name.replace("_", " ") for name in rows[0]], [list(r.values()) for r in rows])


def _explain_configuration(as_json: bool) -> None:
    if as_json:
        print_json([])
    click.echo(
        "no channel is configured; name one, such as\n"
        "  POSTROAD_ALERTS__CHANNELS__MAIL='smtp://mail.example.com?to=admin@example.com'",
        err=True,
    )


@alerts.command()
@click.option("--channel", help="Only those of this channel.")
@click.option("--limit", default=20, show_default=True, help="The latest so many.")
@json_option
@pass_application
def notices(application: Application, channel: str | None, limit: int, as_json: bool) -> None:
    """List what was sent or waits to be sent, with every attempt in --json.

    Example: postroad alerts notices --channel mail --json
    """
    with application.connection() as connection:
        found = status.list_notices(connection, channel=channel, limit=limit)
    print_facts(
        found,
        as_json=as_json,
        empty="there is no notice",
        columns=("id", "channel", "kind", "state", "attempts", "created_at", "sent_at", "error"),
    )


@alerts.command()
@click.argument("notice", type=int)
@json_option
@pass_application
def retry(application: Application, notice: int, as_json: bool) -> None:
    """Retry a notice that waits or was given up.

    Example: postroad alerts retry 42
    """
    with application.connection() as connection:
        is_tried = operations.retry(connection, notice)
    if as_json:
        print_json({"notice": notice, "is_tried": is_tried})
    else:
        click.echo("it will be tried" if is_tried else "there is nothing to try")


@alerts.command("raise")
@click.argument("key")
@click.argument("title")
@click.option("--severity", type=click.Choice(SEVERITIES), default="error", show_default=True)
@click.option(
    "--room", default="operator", show_default=True, help="The component that reports it."
)
@click.option("--text", default="", help="Further details.")
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
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after that long.")
@pass_application
def serve(application: Application, seconds: float | None) -> None:
    """Run a sender of its own; `postroad up` has one already. Several may run.

    Example: postroad alerts serve
    """
    with application.database() as dsn:
        asyncio.run(_serve(application, dsn, seconds))


async def _serve(application: Application, dsn: str, seconds: float | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    settings = application.settings
    sender = AlertSender(dsn, settings.alerts, is_pooled=settings.database.is_pooled)
    async with sender:
        click.echo(f"sending to {', '.join(settings.alerts.channels) or 'nobody'}", err=True)
        try:
            async with asyncio.timeout(seconds):
                await stopping.wait()
        except TimeoutError:
            return
