"""`postroad bus`: queues, consumers and messages from the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import click
import psycopg

from postroad.bus import AsyncMaintenance, Bus, Maintenance
from postroad.bus.errors import translate
from postroad.bus.resources import (
    CONSUMERS,
    CREATE,
    DEAD,
    DEAD_ACTIONS,
    DEAD_GROUPS,
    DEAD_ORIGINALS,
    DROP,
    FIGURES,
    HANDLING,
    LIMIT,
    MESSAGES,
    PAUSE,
    QUEUES,
    REDRIVE,
    REPLAY,
    REPLAY_ACTIONS,
    REPLAYS,
    RESUME,
    RETAIN,
    SCHEDULE_ACTIONS,
    SCHEDULES,
    TRACK,
    WORKERS,
)
from postroad.cli.bus_messages import consume, peek, post, tail, take
from postroad.cli.context import Application, pass_application
from postroad.cli.derived import MAX_LIMIT, action_command, list_command, resource_group
from postroad.cli.output import (
    duration_option,
    json_option,
    print_records,
)
from postroad.cli.parts import PartContext
from postroad.postgres.calls import Connection
from postroad.service import Service


@click.group()
def bus() -> None:
    """Queues, consumers and messages.

    Example: postroad bus create orders --payload jsonb
    """


def bus_run(
    application: Application,
    do: Callable[[Connection], Awaitable[Any]],
    /,
    *,
    is_dry_run: bool = False,
) -> Any:
    """Run a list or an action; each batch is one transaction, a dry run is rolled back."""
    try:
        return application.run(do, is_dry_run=is_dry_run, autocommit=not is_dry_run)
    except psycopg.Error as failure:
        raise (translate(failure) or failure) from failure


for command in (
    post,
    consume,
    peek,
    take,
    tail,
    list_command(QUEUES, bus_run, limit=MAX_LIMIT),
    list_command(CONSUMERS, bus_run, argument="queue", limit=MAX_LIMIT),
    list_command(FIGURES, bus_run, "status", argument="queue", limit=MAX_LIMIT),
    list_command(HANDLING, bus_run, argument="queue", limit=MAX_LIMIT),
    list_command(MESSAGES, bus_run, argument="queue"),
    list_command(WORKERS, bus_run, argument="queue", limit=MAX_LIMIT),
    list_command(DEAD, bus_run, "dmq", argument="queue", limit=100),
    resource_group(DEAD, DEAD_ACTIONS, bus_run, "dead"),
    list_command(DEAD_GROUPS, bus_run, "dead-groups", argument="queue", limit=MAX_LIMIT),
    list_command(DEAD_ORIGINALS, bus_run, "dead-originals", argument="queue"),
    *(
        action_command(action, bus_run)
        for action in (CREATE, DROP, PAUSE, RESUME, LIMIT, REDRIVE, RETAIN, REPLAY, TRACK)
    ),
    resource_group(REPLAYS, REPLAY_ACTIONS, bus_run),
    resource_group(SCHEDULES, SCHEDULE_ACTIONS, bus_run, limit=MAX_LIMIT),
):
    bus.add_command(command)


@bus.command()
@click.argument("queue", required=False)
@duration_option("--every", help="Repeat until Ctrl-C, with this pause between calls.")
@json_option
@pass_application
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
