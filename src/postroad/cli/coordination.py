"""`postroad coordination`: run the services; list events and handle those that are stuck."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import sys
from typing import Any

import click
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from postroad.alerts.sender import AlertSender
from postroad.bridge import DatabaseBridge
from postroad.cli.context import Application, command, run_service
from postroad.cli.coordination_databases import NAMES, coordination_databases, prepare_database
from postroad.cli.derived import MAX_LIMIT, action_command, list_command
from postroad.cli.output import print_json, print_table
from postroad.cli.parts_coordination import make_gateway, make_service, prepare
from postroad.coordination import install_bridges, take_snapshot
from postroad.coordination.reader_service import Check
from postroad.coordination.resources import CANCEL, EVENTS, READERS, RETRY, SKIP, VOTER
from postroad.coordination.sample import SampleWriter
from postroad.service import Service, Together
from postroad.settings import masked_database_url


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
    list_command(EVENTS, _at_coordinator, limit=100),
    list_command(EVENTS, _at_coordinator, "show", limit=100),
    list_command(READERS, _at_coordinator, limit=MAX_LIMIT),
    *(action_command(action, _at_coordinator) for action in (RETRY, SKIP, CANCEL, VOTER)),
):
    coordination.add_command(one)


@command(coordination)
@click.argument("part", type=click.Choice([*NAMES, "gateway"]))
@click.option("--name", help="The Reader's name; default: the setting coordination.reader_name.")
@click.option(
    "--check", "checks", multiple=True, metavar="MODULE:FUNCTION", help="A check of the Reader."
)
@click.option("--sample", "has_sample", is_flag=True, help="With DummyItem and DummyNode.")
@click.option("--host", help="Address on which the Gateway listens.")
@click.option("--port", type=click.IntRange(0, 65535), help="The Gateway's port; 0: any free one.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after this time.")
def serve(
    application: Application,
    part: str,
    name: str | None,
    checks: tuple[str, ...],
    has_sample: bool,
    host: str | None,
    port: int | None,
    seconds: float | None,
) -> None:
    """Run the Writer, the Coordinator, a Reader or the Gateway until Ctrl-C.

    Databases that the settings do not name are created on the server of the main database.

    Example: postroad coordination serve writer --sample

    Example: postroad coordination serve reader --name lists --sample

    Example: postroad coordination serve reader --check shop_checks:has_price

    Example: postroad coordination serve gateway --port 8030
    """
    settings = application.settings.coordination.override(reader_name=name, host=host, port=port)
    with coordination_databases(application) as databases:
        has_reader, sample = part in ("reader", "gateway"), (part,) if has_sample else ()
        prepare(databases, settings.reader_name, has_reader=has_reader, sample=sample)
        services: list[Service] = []
        bridges: list[DatabaseBridge] = []
        if part == "gateway":
            services.append(make_gateway(application, databases, settings))
        else:
            found = [_find_check(check) for check in checks]
            service, bridges = make_service(part, databases, settings, found)
            # Alerts of a database are sent from that database.
            alerts = AlertSender(getattr(databases, part), application.settings.alerts)
            services += [service, alerts]
        if has_sample and part == "writer":
            services.append(SampleWriter(databases.writer))

        def announce() -> None:
            rows = [(each, masked_database_url(getattr(databases, each))) for each in NAMES]
            rows += [("gateway", url) for each in services if (url := getattr(each, "url", None))]
            print_table(("what", "where"), rows)
            click.echo(f"the {part} runs; Ctrl-C ends it", err=True)

        async def run() -> None:
            await install_bridges(bridges)
            # The error of a service ends the process; its supervisor restarts it.
            together = Together(f"coordination {part}", [*bridges, *services])
            await run_service(together, announce, seconds)

        asyncio.run(run())
    click.echo("stopped", err=True)


def _find_check(name: str) -> Check:
    # Like `python -m`, so that modules in the current folder need not be installed.
    if "" not in sys.path:
        sys.path.insert(0, "")
    check = pydoc.locate(name.replace(":", "."))
    if not inspect.iscoroutinefunction(check):
        raise click.BadParameter(f"{name} is not an async function", param_hint="--check")
    return check


@command(coordination)
@click.option("--yes", is_flag=True, help="Do not ask.")
def snapshot(application: Application, yes: bool, as_json: bool) -> None:
    """Copy the Writer's entities to the Reader, which then applies later events.

    Example: postroad coordination snapshot --yes
    """
    if not yes:
        question = "The rows of the Reader's tables will be replaced by the Writer's. Continue?"
        click.confirm(question, abort=True, err=True)
    columns = TextColumn("{task.description}"), DownloadColumn(), TimeElapsedColumn()
    with (
        coordination_databases(application) as databases,
        Progress(*columns, console=Console(stderr=True), disable=as_json) as progress,
    ):
        prepare_database(databases.writer, "writer")
        name = application.settings.coordination.reader_name
        prepare_database(databases.reader, "reader", name)
        task = progress.add_task("copying", total=None)

        def report(entity: str, done: int) -> None:
            progress.update(task, description=entity, completed=done)

        copied = asyncio.run(take_snapshot(databases.writer, databases.reader, progress=report))
    if as_json:
        print_json({"rows": copied})
    else:
        print_table(("entity", "rows"), sorted(copied.items()))
