"""`postroad bus`: queues, consumers and messages from the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
import psycopg

from postroad.bus import AsyncMaintenance, Bus, Maintenance
from postroad.bus import resources as lists
from postroad.bus.errors import translate
from postroad.cli.bus_messages import consume, peek, post, tail, take
from postroad.cli.context import Application, command
from postroad.cli.derived import MAX_LIMIT, Do, action_command, list_command, resource_group
from postroad.cli.output import duration_option, print_records
from postroad.cli.parts import PartContext
from postroad.service import Service


@click.group()
def bus() -> None:
    """Queues, consumers and messages.

    Example: postroad bus create orders --payload jsonb
    """


def bus_run(application: Application, do: Do, /, *, is_dry_run: bool = False) -> Any:
    """Run a list or an action; each batch is one transaction, a dry run is rolled back."""
    try:
        return application.run(do, is_dry_run=is_dry_run, autocommit=not is_dry_run)
    except psycopg.Error as failure:
        raise (translate(failure) or failure) from failure


for one in (
    post,
    consume,
    peek,
    take,
    tail,
    list_command(lists.QUEUES, bus_run, limit=MAX_LIMIT),
    list_command(lists.CONSUMERS, bus_run, argument="queue", limit=MAX_LIMIT),
    list_command(lists.FIGURES, bus_run, "status", argument="queue", limit=MAX_LIMIT),
    list_command(lists.HANDLING, bus_run, argument="queue", limit=MAX_LIMIT),
    list_command(lists.MESSAGES, bus_run, argument="queue"),
    list_command(lists.WORKERS, bus_run, argument="queue", limit=MAX_LIMIT),
    list_command(lists.DEAD, bus_run, "dmq", argument="queue", limit=100),
    resource_group(lists.DEAD, lists.DEAD_ACTIONS, bus_run, "dead"),
    list_command(lists.DEAD_GROUPS, bus_run, "dead-groups", argument="queue", limit=MAX_LIMIT),
    list_command(lists.DEAD_ORIGINALS, bus_run, "dead-originals", argument="queue"),
    *(action_command(action, bus_run) for action in lists.QUEUE_ACTIONS),
    resource_group(lists.REPLAYS, lists.REPLAY_ACTIONS, bus_run),
    resource_group(lists.SCHEDULES, lists.SCHEDULE_ACTIONS, bus_run, limit=MAX_LIMIT),
):
    bus.add_command(one)


@command(bus)
@click.argument("queue", required=False)
@duration_option("--every", help="Repeat until Ctrl-C, with this pause between calls.")
def maintain(
    application: Application, queue: str | None, every: timedelta | None, as_json: bool
) -> None:
    """Run the maintenance that is due: rotate, reclaim, release, expire. Safe at any time.

    Example: postroad bus maintain

    Example: postroad bus maintain --every 500ms
    """
    if every is not None:
        if queue is not None:
            raise click.UsageError("--every maintains all queues; leave the queue out")
        with application.database() as dsn, Maintenance(dsn, every) as service:
            click.echo("maintaining; Ctrl-C ends it", err=True)
            service.join()
        return
    with application.connection(autocommit=True) as connection:
        done = Bus(connection).maintain(queue)
    print_records(done, as_json=as_json, empty="nothing was due")


def maintenance(context: PartContext) -> Service:
    """Make the maintenance of the bus."""
    settings = context.application.settings
    return AsyncMaintenance(
        context.dsn, settings.bus.maintenance_interval, is_pooled=settings.database.is_pooled
    )
