"""`postroad coordination serve`: one service of coordination as a process."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import sys

import click

from postroad.alerts.sender import AlertSender
from postroad.bridge import DatabaseBridge
from postroad.cli.context import Application, command, run_service
from postroad.cli.coordination_databases import coordination_databases
from postroad.cli.output import print_table
from postroad.cli.parts_coordination import make_gateway, make_service, prepare
from postroad.coordination import install_bridges
from postroad.coordination.reader_service import Check
from postroad.coordination.sample import SampleWriter
from postroad.service import Service, Together
from postroad.settings import masked_database_url

PARTS = ("writer", "coordinator", "reader", "gateway")


@command()
@click.argument("part", type=click.Choice(PARTS))
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
    settings = application.settings.coordination
    with coordination_databases(application) as databases:
        reader = name or settings.reader_name
        has_reader, sample = part in ("reader", "gateway"), (part,) if has_sample else ()
        prepare(databases, reader, has_reader=has_reader, sample=sample)
        services: list[Service] = []
        bridges: list[DatabaseBridge] = []
        if part == "gateway":
            services.append(make_gateway(application, databases, host=host or None, port=port))
        else:
            found = [_find_check(check) for check in checks]
            service, bridges = make_service(part, databases, settings, reader, found)
            # Alerts of a database are sent from that database.
            alerts = AlertSender(getattr(databases, part), application.settings.alerts)
            services += [service, alerts]
        if has_sample and part == "writer":
            services.append(SampleWriter(databases.writer))

        def announce() -> None:
            rows = [(each, masked_database_url(getattr(databases, each))) for each in PARTS[:3]]
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
    # As `python -m` does, so that modules in the current folder need not be installed.
    if "" not in sys.path:
        sys.path.insert(0, "")
    check = pydoc.locate(name.replace(":", "."))
    if not inspect.iscoroutinefunction(check):
        raise click.BadParameter(f"{name} is not an async function", param_hint="--check")
    return check
