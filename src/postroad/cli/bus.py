"""`postroad bus`: queues, consumers and messages from the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
from psycopg import Connection

from postroad.bus import Bus, Maintenance, QueueNotFound
from postroad.bus.payload import PAYLOADS, Payload
from postroad.cli.bus_messages import consume, peek, post, tail, take
from postroad.cli.bus_output import print_facts
from postroad.cli.context import Application, pass_application
from postroad.cli.output import dry_run_option, json_option, parse_duration, print_json


@click.group()
def bus() -> None:
    """Queues, consumers and messages.

    Example: postroad bus create orders --payload jsonb
    """


for command in (post, consume, peek, take, tail):
    bus.add_command(command)


@bus.command()
@json_option
@pass_application
def queues(application: Application, as_json: bool) -> None:
    """List every queue and its shape.

    Example: postroad bus queues --json
    """
    with application.connection() as connection:
        print_facts(Bus(connection).queues(), as_json=as_json, empty="there are no queues")


@bus.command()
@click.argument("queue", required=False)
@json_option
@pass_application
def consumers(application: Application, queue: str | None, as_json: bool) -> None:
    """List the durable subscribers of one queue or of all.

    Example: postroad bus consumers orders
    """
    with application.connection() as connection:
        found = Bus(connection).consumers(_known(connection, queue))
    print_facts(found, as_json=as_json, empty="there are no consumers")


@bus.command()
@click.argument("queue", required=False)
@json_option
@pass_application
def status(application: Application, queue: str | None, as_json: bool) -> None:
    """Show depth, age and rates of one queue or of all.

    Example: postroad bus status orders
    """
    with application.connection() as connection:
        found = Bus(connection).status(_known(connection, queue))
    print_facts(found, as_json=as_json, empty="there are no queues")


@bus.command()
@click.argument("queue")
@click.argument("consumer", required=False)
@click.option("--payload", type=click.Choice(PAYLOADS), default="hstore", show_default=True)
@click.option("--ncons", default=8, show_default=True, help="Number of ring segments.")
@click.option("--roles", "has_roles", is_flag=True, help="Ask posters and consumers for roles.")
@click.option("--selector", help="SQL condition over t: what the consumer wants.")
@click.option("--noindex", is_flag=True, help="Accepted for compatibility with older scripts.")
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
    noindex: bool,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Create a queue, or a consumer of an existing one.

    Example: postroad bus create orders --payload jsonb

    Example: postroad bus create orders audit --selector "(t.properties->'STATE')='DONE'"
    """
    if consumer is None and selector is not None:
        raise click.UsageError("a selector belongs to a consumer; name it after the queue")
    with application.connection() as connection:
        inside = Bus(connection)
        if consumer is None:
            inside.create_queue(queue, ncons, has_roles, payload)
        else:
            inside.create_consumer(queue, consumer, selector, noindex)
        if is_dry_run:
            connection.rollback()
    _say(queue, consumer, "created", is_dry_run=is_dry_run, as_json=as_json)


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
    """Drop a queue, or one consumer of it, with the messages in it.

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
            click.confirm(f"{lost} messages will be lost. Go on?", abort=True, err=True)
        if consumer is None:
            inside.drop_queue(queue)
        else:
            inside.drop_consumer(queue, consumer)
        if is_dry_run:
            connection.rollback()
    _say(queue, consumer, "dropped", is_dry_run=is_dry_run, as_json=as_json, messages_lost=lost)


@bus.command()
@click.argument("queue", required=False)
@click.option("--consumer", help="Only those of this consumer.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="The latest so many.",
)
@json_option
@pass_application
def dmq(
    application: Application, queue: str | None, consumer: str | None, limit: int, as_json: bool
) -> None:
    """List dead messages, the latest first, and why they died.

    Example: postroad bus dmq orders --limit 10
    """
    with application.connection() as connection:
        found = Bus(connection).dead(_known(connection, queue), consumer, limit)
    print_facts(
        found,
        as_json=as_json,
        empty="there are no dead messages",
        columns=("died_at", "queue", "consumer", "iid", "attempts", "error", "data"),
    )


@bus.command()
@click.argument("queue")
@click.option("--consumer", help="Only those of this consumer.")
@click.option("--iid", help="Only this message.")
@dry_run_option
@json_option
@pass_application
def redrive(
    application: Application,
    queue: str,
    consumer: str | None,
    iid: str | None,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Bring dead messages back, to be delivered again.

    Example: postroad bus redrive orders --iid orders.4711@k3f9q2
    """
    # Each batch in a transaction of its own, unless all of them are rolled back.
    with application.connection(autocommit=not is_dry_run) as connection:
        count = Bus(connection).redrive(queue, consumer, iid)
        if is_dry_run:
            connection.rollback()
    if as_json:
        print_json({"redriven": count, "is_dry_run": is_dry_run})
    else:
        click.echo(f"{count} {'would come' if is_dry_run else 'came'} back")


@bus.command()
@click.argument("queue", required=False)
@click.option(
    "--every",
    type=parse_duration,
    metavar="DURATION",
    help="Go on until Ctrl-C, with this pause between calls.",
)
@json_option
@pass_application
def maintain(
    application: Application, queue: str | None, every: timedelta | None, as_json: bool
) -> None:
    """Do the housekeeping that is due: rotate, reclaim, release, expire. Safe at any time.

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
    print_facts(done, as_json=as_json, empty="nothing was due")


def _known(connection: Connection[Any], queue: str | None) -> str | None:
    """Let the name of a queue pass; raise QueueNotFound where it names none."""
    names = [each.queue for each in Bus(connection).queues()]
    if queue is not None and queue not in names:
        raise QueueNotFound(
            f'queue "{queue}" does not exist', hint="look at: postroad bus queues", queue=queue
        )
    return queue


def _say(
    queue: str,
    consumer: str | None,
    verb: str,
    *,
    is_dry_run: bool,
    as_json: bool,
    **facts: object,
) -> None:
    if as_json:
        print_json({"queue": queue, "consumer": consumer, "is_dry_run": is_dry_run, **facts})
        return
    what = f"queue {queue}" if consumer is None else f"consumer {consumer} of queue {queue}"
    click.echo(f"{what} {'would be ' if is_dry_run else ''}{verb}")
