"""`postroad coordination serve`: one service of coordination as a process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import pydoc
import sys
from collections.abc import Sequence

import click

from postroad.alerts.sender import AlertSender
from postroad.bridge import DatabaseBridge
from postroad.cli.context import Application, pass_application, stop_event
from postroad.cli.coordination_databases import (
    Databases,
    coordination_databases,
    prepare_database,
)
from postroad.cli.output import print_table
from postroad.cli.together import Together
from postroad.coordination import Coordinator, Reader, Writer, install_bridges
from postroad.coordination.bridges import reader_bridges, writer_bridges
from postroad.coordination.reader_service import Check
from postroad.coordination.sample import SampleWriter, install_sample
from postroad.service import Service
from postroad.settings import CoordinationSettings, masked_database_url

PARTS = ("writer", "coordinator", "reader", "gateway")


@click.command()
@click.argument("part", type=click.Choice(PARTS))
@click.option("--name", help="The Reader's name; default: the setting coordination.reader_name.")
@click.option(
    "--check", "checks", multiple=True, metavar="MODULE:FUNCTION", help="A check of the Reader."
)
@click.option("--sample", "has_sample", is_flag=True, help="With DummyItem and DummyNode.")
@click.option("--host", help="Address on which the Gateway listens.")
@click.option("--port", type=click.IntRange(0, 65535), help="The Gateway's port; 0: any free one.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after this time.")
@pass_application
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
    settings = application.settings.coordination
    with coordination_databases(application) as databases:
        reader = name or settings.reader_name
        _prepare(part, databases, reader, has_sample=has_sample)
        found = [_find_check(check) for check in checks]
        services, bridges = _services(part, databases, settings, reader, found)
        if part != "gateway":
            # Alerts of a database are sent from that database.
            services.append(AlertSender(getattr(databases, part), application.settings.alerts))
        if has_sample and part == "writer":
            services.append(SampleWriter(databases.writer))
        if part == "gateway":
            # FastAPI is slow to import, so only the service that needs it imports it.
            from postroad.coordination.gateway import Gateway

            services.append(
                Gateway(
                    databases.writer,
                    databases.coordinator,
                    databases.reader,
                    host=host or settings.host,
                    port=settings.port if port is None else port,
                    after_timeout=settings.after_timeout,
                    token=application.token("coordination", settings.token),
                    http=application.settings.http,
                )
            )
        asyncio.run(_serve(part, services, bridges, databases, seconds))


def _prepare(part: str, databases: Databases, reader: str, *, has_sample: bool) -> None:
    """Prepare all databases, so that the services may be started in any order."""
    prepare_database(databases.writer, "writer")
    prepare_database(databases.coordinator, "coordinator")
    if part in ("reader", "gateway"):
        prepare_database(databases.reader, "reader", reader)
    if has_sample and part == "writer":
        install_sample(databases.writer)
    if has_sample and part == "reader":
        install_sample(databases.reader, reader=reader)


def _find_check(name: str) -> Check:
    # As `python -m` does, so that modules in the current folder need not be installed.
    if "" not in sys.path:
        sys.path.insert(0, "")
    check = pydoc.locate(name.replace(":", "."))
    if not inspect.iscoroutinefunction(check):
        raise click.BadParameter(f"{name} is not an async function", param_hint="--check")
    return check


def _services(
    part: str,
    databases: Databases,
    settings: CoordinationSettings,
    reader: str,
    checks: Sequence[Check],
) -> tuple[list[Service], list[DatabaseBridge]]:
    services: list[Service] = []
    bridges: list[DatabaseBridge] = []
    if part == "writer":
        services.append(
            Writer(
                databases.writer,
                poll_interval=settings.poll_interval,
                resend=settings.resend,
                keep=settings.keep,
            )
        )
        bridges = writer_bridges(databases.writer, databases.coordinator)
    elif part == "coordinator":
        services.append(
            Coordinator(
                databases.coordinator,
                deadline=settings.deadline,
                ask=settings.ask,
                keep=settings.keep,
            )
        )
    elif part == "reader":
        services.append(
            Reader(
                databases.reader,
                databases.writer,
                page=settings.page,
                max_attempts=settings.max_attempts,
                wait=settings.wait,
                checks=checks,
                keep=settings.keep,
            )
        )
        bridges = reader_bridges(reader, databases.reader, databases.coordinator)
    return services, bridges


async def _serve(
    part: str,
    services: list[Service],
    bridges: list[DatabaseBridge],
    databases: Databases,
    seconds: float | None,
) -> None:
    stopping = stop_event()
    await install_bridges(bridges)
    together = Together(f"coordination {part}", [*bridges, *services])
    async with together:
        rows = [(each, masked_database_url(getattr(databases, each))) for each in PARTS[:3]]
        rows += [("gateway", url) for each in services if (url := getattr(each, "url", None))]
        print_table(("what", "where"), rows)
        click.echo(f"the {part} runs; Ctrl-C ends it", err=True)
        # The error of a service ends the process; its supervisor restarts it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await together.join_or(stopping)
    click.echo("stopped", err=True)
