"""`postroad coordination`: run the parts, look at events, help those that are stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar, get_args

import click
from psycopg import AsyncConnection
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from postroad.cli.bus_output import print_facts
from postroad.cli.context import Application, pass_application
from postroad.cli.coordination_databases import coordination_databases, prepare_database
from postroad.cli.coordination_serve import serve
from postroad.cli.output import dry_run_option, json_option, print_json, print_table
from postroad.coordination import operations, status, take_snapshot
from postroad.postgres import connect_async

__all__ = ["coordination"]

T = TypeVar("T")
STATES = get_args(status.State)
_EVENT_COLUMNS = (
    "event_id",
    "state",
    "mode",
    "type",
    "payloads",
    "created_at",
    "finished_at",
    "reason",
)


@click.group()
def coordination() -> None:
    """Writer, Coordinator, Reader, Gateway: entity changes in phases.

    Example: postroad coordination events --state Activated
    """


coordination.add_command(serve)


@coordination.command()
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--entity", help="Only those that change this entity.")
@click.option("--unfinished", is_flag=True, help="Only those that are not finished.")
@click.option("--limit", default=100, show_default=True, help="The latest so many.")
@json_option
@pass_application
def events(
    application: Application,
    state: str | None,
    entity: str | None,
    unfinished: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List events, the latest first.

    Example: postroad coordination events --entity DummyItem --unfinished
    """

    async def look(connection: AsyncConnection[Any]) -> list[status.EventStatus]:
        return await status.events(
            connection,
            state=state,
            entity=entity,
            is_finished=False if unfinished else None,
            limit=limit,
        )

    print_facts(
        _at_coordinator(application, look),
        as_json=as_json,
        empty="there are no events",
        columns=_EVENT_COLUMNS,
    )


@coordination.command()
@json_option
@pass_application
def readers(application: Application, as_json: bool) -> None:
    """List the readers, how far they are and what is parked there.

    Example: postroad coordination readers
    """
    print_facts(
        _at_coordinator(application, status.readers),
        as_json=as_json,
        empty="there are no readers; start one with: postroad coordination serve reader",
    )


@coordination.command()
@click.argument("event_id", type=int)
@json_option
@pass_application
def show(application: Application, event_id: int, as_json: bool) -> None:
    """Show one event: how each reader stands, and every state with its time.

    Example: postroad coordination show 42
    """
    found = _at_coordinator(application, lambda connection: status.event(connection, event_id))
    if as_json:
        print_json(asdict(found))
        return
    event = found.event
    click.echo(
        f"event {event.event_id}: {event.type}, {event.payloads} payloads,"
        f" {event.mode}, {event.state}" + (f" ({event.reason})" if event.reason else "")
    )
    click.echo()
    if found.readers:
        columns = ("reader", "state", "progress", "vote", "attempts", "parked", "reason")
        print_table(
            columns,
            [
                (
                    each.reader,
                    each.state,
                    f"{each.staged}/{each.payloads}",
                    each.vote,
                    each.attempts,
                    each.is_parked,
                    each.reason,
                )
                for each in found.readers
            ],
        )
        click.echo()
    began = found.timeline[0].at if found.timeline else event.created_at
    print_table(
        ("after ms", "state", "by", "reader", "note"),
        [
            (
                (step.at - began).total_seconds() * 1000,
                step.state,
                step.by,
                step.reader,
                step.note,
            )
            for step in found.timeline
        ],
    )


@coordination.command()
@click.argument("event_id", type=int)
@click.option("--reader", help="Only at this reader.")
@json_option
@pass_application
def retry(application: Application, event_id: int, reader: str | None, as_json: bool) -> None:
    """Try a parked event again, or a rollback that was refused.

    Example: postroad coordination retry 42 --reader lists
    """
    _at_coordinator(application, lambda each: operations.retry(each, event_id, reader))
    _say(f"event {event_id} is tried again", as_json, event_id=event_id, reader=reader)


@coordination.command()
@click.argument("event_id", type=int)
@click.option("--reader", required=True, help="The reader where it is parked.")
@dry_run_option
@json_option
@pass_application
def skip(
    application: Application, event_id: int, reader: str, is_dry_run: bool, as_json: bool
) -> None:
    """Drop a parked event at one reader, which then lacks what the event changed.

    Later changes of the same rows, or a snapshot, bring it up to date.

    Example: postroad coordination skip 42 --reader lists
    """

    async def do(connection: AsyncConnection[Any]) -> None:
        async with connection.transaction(force_rollback=is_dry_run):
            await operations.skip(connection, event_id, reader)

    _at_coordinator(application, do)
    verb = "would be skipped" if is_dry_run else "is skipped"
    _say(f"event {event_id} {verb} at {reader}", as_json, event_id=event_id, reader=reader)


@coordination.command()
@click.argument("event_id", type=int)
@click.option("--reason", default="cancelled by an operator", show_default=True)
@dry_run_option
@json_option
@pass_application
def cancel(
    application: Application, event_id: int, reason: str, is_dry_run: bool, as_json: bool
) -> None:
    """Cancel an event that no reader has committed: readers drop it, the Writer restores.

    Example: postroad coordination cancel 42 --reason "wrong prices"
    """

    async def do(connection: AsyncConnection[Any]) -> None:
        async with connection.transaction(force_rollback=is_dry_run):
            await operations.cancel(connection, event_id, reason)

    _at_coordinator(application, do)
    verb = "would be cancelled" if is_dry_run else "is being cancelled"
    _say(f"event {event_id} {verb}", as_json, event_id=event_id, is_dry_run=is_dry_run)


@coordination.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_application
def snapshot(application: Application, yes: bool, as_json: bool) -> None:
    """Copy the Writer's entities to the Reader anew, and let it follow from there.

    Example: postroad coordination snapshot --yes
    """
    if not yes:
        click.confirm("The Reader's tables get the Writer's rows. Go on?", abort=True, err=True)
    name = application.settings.coordination.reader_name
    with (
        coordination_databases(application) as databases,
        Progress(
            TextColumn("{task.description}"),
            DownloadColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=as_json,
        ) as progress,
    ):
        prepare_database(databases.writer, "writer")
        prepare_database(databases.reader, "reader", name)
        task = progress.add_task("copying", total=None)

        def tell(entity: str, done: int) -> None:
            progress.update(task, description=entity, completed=done)

        copied = asyncio.run(take_snapshot(databases.writer, databases.reader, progress=tell))
    if as_json:
        print_json({"rows": copied})
    else:
        print_table(("entity", "rows"), sorted(copied.items()))


@coordination.command()
@click.argument("reader")
@click.option("--voter/--no-voter", "is_voter", required=True, help="Whether it has a say.")
@json_option
@pass_application
def voter(application: Application, reader: str, is_voter: bool, as_json: bool) -> None:
    """Give a reader its say, or take it while the reader is away for long.

    Example: postroad coordination voter lists --no-voter
    """
    _at_coordinator(application, lambda each: operations.set_voter(each, reader, is_voter=is_voter))
    verb = "votes" if is_voter else "does not vote; it catches up when it is back"
    _say(f"reader {reader} {verb}", as_json, reader=reader, is_voter=is_voter)


def _at_coordinator(
    application: Application, call: Callable[[AsyncConnection[Any]], Awaitable[T]]
) -> T:
    async def run(dsn: str) -> T:
        connection = await connect_async(dsn, autocommit=True)
        try:
            return await call(connection)
        finally:
            await connection.close()

    with coordination_databases(application) as databases:
        prepare_database(databases.coordinator, "coordinator")
        return asyncio.run(run(databases.coordinator))


def _say(sentence: str, as_json: bool, **facts: object) -> None:
    if as_json:
        print_json(facts)
    else:
        click.echo(sentence)
