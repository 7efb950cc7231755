"""`postroad bus`: queues, consumers and messages from the command line."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import click
import psycopg

from postroad.bus import AsyncMaintenance, Bus, Maintenance, Message, QueueNotFound
from postroad.bus import payload as payloads
from postroad.bus import resources as lists
from postroad.bus.asyncapi import asyncapi as asyncapi_document
from postroad.bus.errors import translate
from postroad.cli.context import Application, command
from postroad.cli.derived import MAX_LIMIT, Do, action_command, list_command, resource_group
from postroad.cli.output import (
    EXIT_CODES,
    duration_option,
    print_json,
    print_records,
    print_result,
)
from postroad.cli.parts import PartContext
from postroad.service import Service

# These headers are omitted, because they are the same for all messages of a queue.
_USUAL_HEADERS = {"seenby", "source_db", "destination", "enqueue_time"}


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


def _pair(value: str) -> tuple[str, str]:
    """Parse `name=value`; the value may contain equals signs."""
    name, sign, rest = value.partition("=")
    if not (name and sign):
        raise click.BadParameter(f"{value!r} is not name=value")
    return name, rest


PAIRS: Any = {"type": _pair, "metavar": "NAME=VALUE", "multiple": True, "help": "May be repeated."}


@command(bus)
@click.argument("queue")
@click.argument("data", required=False)
@click.option("--lines", type=click.File(), help="Post each line of this file; - is stdin.")
@click.option("--header", "headers", **PAIRS)
@click.option("--property", "properties", **PAIRS)
@duration_option("--delay", help="Deliver after this time, such as 5m.")
@duration_option("--expires", help="Do not deliver after this time.")
@click.option("--iid", help="A reserved iid; only for one message.")
def post(
    application: Application,
    queue: str,
    data: str | None,
    lines: TextIO | None,
    headers: tuple[tuple[str, str], ...],
    properties: tuple[tuple[str, str], ...],
    delay: timedelta | None,
    expires: timedelta | None,
    iid: str | None,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Post DATA: JSON for hstore and jsonb queues, otherwise the text itself.

    Example: postroad bus post orders '{"number": "4711"}' --property STATE=DONE

    Example: postroad bus post orders --lines orders.jsonl
    """
    if (data is None) == (lines is None):
        raise click.UsageError("pass DATA, or a file with --lines")
    if lines is not None and iid is not None:
        raise click.UsageError("--iid is for one message, --lines posts many")
    now = datetime.now(UTC)
    delayed_until = None if delay is None else now + delay
    expiry = None if expires is None else now + expires
    with application.database() as dsn, Bus(dsn) as bus:
        shape = {each.queue: each.payload for each in bus.queues()}
        payload = payloads.of_queue(queue, shape.get(queue))
        texts = [data or ""] if lines is None else lines.read().splitlines()
        values = [
            text.encode() if payload == "bytea" else payloads.parse(payload, text) for text in texts
        ]
        shared = (dict(headers) or None, dict(properties) or None, delayed_until, expiry)
        if is_dry_run:
            iids: list[str] = []
        elif iid is not None:
            iids = [bus.post(queue, values[0], *shared, iid=iid)]
        else:
            iids = bus.post_many(queue, values, *shared)
    sentence = f"{len(values)} would be posted" if is_dry_run else "\n".join(iids)
    print_result({"iids": iids, "is_dry_run": is_dry_run}, sentence, as_json=as_json)


@command(bus)
@click.argument("queue")
@click.option("--consumer", default="default", show_default=True, help="The durable subscriber.")
@click.option("--amount", default=1, show_default=True, type=click.IntRange(min=1))
def consume(
    application: Application,
    queue: str,
    consumer: str,
    amount: int,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Consume messages and print them. With --dry-run they stay.

    Example: postroad bus consume orders --consumer billing --amount 10
    """
    with application.connection() as connection:
        messages = Bus(connection).consume(queue, consumer, amount)
        # Printed before the commit: a message that could not be printed is not consumed.
        _print_messages(messages, as_json=as_json)
        if is_dry_run:
            connection.rollback()


@command(bus)
@click.argument("queue")
@click.argument("iid", required=False)
def peek(application: Application, queue: str, iid: str | None, as_json: bool) -> None:
    """Check whether the queue has a message, or this message; exit code 3 if not.

    Example: postroad bus peek orders && echo "there is work"
    """
    with application.connection() as connection:
        is_there = Bus(connection).peek(queue, iid)
    result = {"queue": queue, "iid": iid, "is_there": is_there}
    print_result(result, "yes" if is_there else "no", as_json=as_json)
    if not is_there:
        raise click.exceptions.Exit(EXIT_CODES["not_found"][0])


@command(bus)
@click.argument("iid")
@click.option("--consumer", help="Take one consumer's copy only; default: all copies.")
def take(
    application: Application, iid: str, consumer: str | None, is_dry_run: bool, as_json: bool
) -> None:
    """Take one message by its iid, in any state, and print it; exit code 3 if there is none.

    Example: postroad bus take orders.4711@k3f9q2
    """
    with application.connection() as connection:
        message = Bus(connection).take(iid, consumer)
        _print_messages([] if message is None else [message], as_json=as_json)
        if is_dry_run:
            connection.rollback()
    if message is None:
        raise click.exceptions.Exit(EXIT_CODES["not_found"][0])


@command(bus)
@click.argument("queue")
@click.argument("consumer")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many.")
def tail(
    application: Application, queue: str, consumer: str, count: int | None, as_json: bool
) -> None:
    """Print the messages of a consumer as they arrive, and consume the printed ones.

    Create a consumer for it first: a message that is printed here reaches no other worker.

    Example: postroad bus tail orders watching
    """
    with application.database() as dsn:
        is_pooled = application.settings.database.is_pooled
        with Bus(dsn, listen=not is_pooled) as bus:
            if not any(each.queue == queue for each in bus.queues()):
                raise QueueNotFound(
                    f'queue "{queue}" does not exist', hint="see `postroad bus queues`"
                )
            poll_interval = application.settings.bus.poll_interval
            with bus.subscribe(queue, consumer, poll_interval=poll_interval) as messages:
                for message in itertools.islice(messages, count):
                    if as_json:
                        print_json(dataclasses.asdict(message), is_line=True)
                        continue
                    added = message.added.astimezone().isoformat(sep=" ", timespec="milliseconds")
                    click.echo(f"{added}  {message.iid}  {_shown(message.data)}")


@command(bus)
@click.option("--output", type=click.File("w"), default="-", help="Write to this file.")
def asyncapi(application: Application, output: TextIO) -> None:
    """Print the queues, consumers and schemas as an AsyncAPI 3.0 document.

    Example: postroad bus asyncapi --output asyncapi.json
    """
    document = bus_run(application, asyncapi_document)
    click.echo(json.dumps(document, indent=2), file=output)


def _print_messages(messages: Sequence[Message], *, as_json: bool) -> None:
    if as_json:
        print_json([dataclasses.asdict(message) for message in messages])
    else:
        print_records([*map(_row, messages)], as_json=False, empty="there is no message")


def _row(message: Message) -> dict[str, Any]:
    return {
        "iid": message.iid,
        "added": message.added,
        "headers": {k: v for k, v in message.headers.items() if k not in _USUAL_HEADERS} or None,
        "properties": dict(message.properties) or None,
        "data": _shown(message.data),
    }


def _shown(data: Any) -> Any:
    return f"\\x{data.hex()}" if isinstance(data, bytes) else data


def maintenance(context: PartContext) -> Service:
    """Create the maintenance of the bus."""
    settings = context.application.settings
    return AsyncMaintenance(
        context.dsn, settings.bus.maintenance_interval, is_pooled=settings.database.is_pooled
    )
