"""`postroad bus`: queues, consumers and messages from the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal

import click
import psycopg

from postroad.bus import AsyncMaintenance, Bus, Maintenance, operations
from postroad.bus.errors import translate
from postroad.bus.payload import PAYLOADS, Payload
from postroad.bus.resources import (
    CONSUMERS,
    DEAD,
    DEAD_ACTIONS,
    DEAD_GROUPS,
    DEAD_ORIGINALS,
    FIGURES,
    HANDLING,
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
    WORKERS,
)
from postroad.cli.bus_messages import consume, peek, post, tail, take
from postroad.cli.context import Application, pass_application
from postroad.cli.derived import MAX_LIMIT, action_command, list_command, resource_group
from postroad.cli.output import (
    dry_run_option,
    duration_option,
    json_option,
    print_records,
    print_result,
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
    *(action_command(action, bus_run) for action in (PAUSE, RESUME, REDRIVE, RETAIN, REPLAY)),
    resource_group(REPLAYS, REPLAY_ACTIONS, bus_run),
    resource_group(SCHEDULES, SCHEDULE_ACTIONS, bus_run, limit=MAX_LIMIT),
):
    bus.add_command(command)


@bus.command()
@click.argument("queue")
@click.argument("consumer", required=False)
@click.option("--payload", type=click.Choice(PAYLOADS), default="hstore", show_default=True)
@click.option("--ncons", default=8, show_default=True, help="Number of ring segments.")
@click.option(
    "--roles",
    "has_roles",
    is_flag=True,
    help="Only members of the queue's roles may post and consume.",
)
@click.option(
    "--selector", help="SQL condition over the message t: which messages the consumer gets."
)
@click.option(
    "--start-from",
    metavar="TIME",
    help="Also what was posted since then and is retained or not consumed yet, or earliest.",
)
@click.option("--noindex", is_flag=True, help="Accepted for compatibility with older scripts.")
@click.option(
    "--contract",
    type=click.Choice(["message", "cursor"]),
    default="message",
    show_default=True,
    help="How the consumer takes messages: one by one, or in order with a cursor.",
)
@dry_run_option
@json_option
@pass_application
def create(
    application: Application,
    queue: str,
    consumer: str | None,
    payload: Payload,
    ncons: int,
    has_roles: bool,
    selector: str | None,
    start_from: str | None,
    noindex: bool,
    contract: Literal["message", "cursor"],
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Create a queue, or a consumer of an existing one.

    Example: postroad bus create orders --payload jsonb

    Example: postroad bus create orders audit --selector "(t.properties->'STATE')='DONE'"
    """
    if consumer is None and (selector or start_from or contract != "message"):
        raise click.UsageError("this option belongs to a consumer; name it after the queue")
    start: Any = operations.time_of(start_from) if start_from != "earliest" else start_from
    with application.connection() as connection:
        inside = Bus(connection)
        if consumer is None:
            inside.create_queue(queue, ncons, has_roles, payload)
        else:
            inside.create_consumer(queue, consumer, selector, noindex, start, contract)
        if is_dry_run:
            connection.rollback()
    _report(queue, consumer, "created", is_dry_run=is_dry_run, as_json=as_json)


@bus.command()
@click.argument("queue")
@click.argument("consumer", required=False)
@click.option("--yes", is_flag=True, help="Do not ask, even if messages would be lost.")
@dry_run_option
@json_option
@pass_application
def drop(
    application: Application,
    queue: str,
    consumer: str | None,
    yes: bool,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Drop a queue, or one consumer of it, with its messages.

    Example: postroad bus drop orders audit --dry-run
    """
    with application.connection() as connection:
        inside = Bus(connection)
        lost = sum(
            each.depth + each.dmq
            for each in inside.status(queue)
            if consumer in (None, each.consumer)
        )
        if lost and not yes and not is_dry_run:
            click.confirm(f"{lost} messages will be lost. Continue?", abort=True, err=True)
        if consumer is None:
            inside.drop_queue(queue)
        else:
            inside.drop_consumer(queue, consumer)
        if is_dry_run:
            connection.rollback()
    _report(queue, consumer, "dropped", is_dry_run=is_dry_run, as_json=as_json, messages_lost=lost)


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


def _report(
    queue: str, consumer: str | None, verb: str, *, is_dry_run: bool, as_json: bool, **facts: object
) -> None:
    result = {"queue": queue, "consumer": consumer, "is_dry_run": is_dry_run, **facts}
    what = f"queue {queue}" if consumer is None else f"consumer {consumer} of queue {queue}"
    would = "would be " if is_dry_run else ""
    print_result(result, f"{what} {would}{verb}", as_json=as_json)


def maintenance(context: PartContext) -> Service:
    """Make the maintenance of the bus."""
    settings = context.application.settings
    return AsyncMaintenance(
        context.dsn, settings.bus.maintenance_interval, is_pooled=settings.database.is_pooled
    )
