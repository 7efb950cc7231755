"""`postroad coordination`: run the services; list events and handle those that are stuck."""

from __future__ import annotations

import asyncio
from typing import Any

import click
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from postroad.cli.context import Application, command
from postroad.cli.coordination_databases import coordination_databases, prepare_database
from postroad.cli.coordination_serve import serve
from postroad.cli.derived import MAX_LIMIT, action_command, list_command
from postroad.cli.output import print_json, print_table
from postroad.coordination import take_snapshot
from postroad.coordination.resources import CANCEL, EVENTS, READERS, RETRY, SKIP, VOTER


@click.group()
def coordination() -> None:
    """Writer, Coordinator, Reader, Gateway: entity changes in phases.

    Example: postroad coordination events --state Activated
    """


def _at_coordinator(application: Application, do: Any, /, *, is_dry_run: bool = False) -> Any:
    with coordination_databases(application) as databases:
        prepare_database(databases.coordinator, "coordinator")
        # Without an enclosing transaction the services are notified; see `operations`.
        return application.run(
            do, is_dry_run=is_dry_run, dsn=databases.coordinator, autocommit=not is_dry_run
        )


for one in (
    serve,
    list_command(EVENTS, _at_coordinator, limit=100),
    list_command(EVENTS, _at_coordinator, "show", limit=100),
    list_command(READERS, _at_coordinator, limit=MAX_LIMIT),
    *(action_command(action, _at_coordinator) for action in (RETRY, SKIP, CANCEL, VOTER)),
):
    coordination.add_command(one)


@command(coordination)
@click.option("--yes", is_flag=True, help="Do not ask.")
def snapshot(application: Application, yes: bool, as_json: bool) -> None:
    """Copy the Writer's entities to the Reader, which then applies later events.

    Example: postroad coordination snapshot --yes
    """
    if not yes:
        click.confirm(
            "The rows of the Reader's tables will be replaced by the Writer's. Continue?",
            abort=True,
            err=True,
        )
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

        def report(entity: str, done: int) -> None:
            progress.update(task, description=entity, completed=done)

        copied = asyncio.run(take_snapshot(databases.writer, databases.reader, progress=report))
    if as_json:
        print_json({"rows": copied})
    else:
        print_table(("entity", "rows"), sorted(copied.items()))
