"""`postroad find`: searches all components."""

from __future__ import annotations

from functools import partial

import click

from postroad.bus import resources as bus
from postroad.cli.bus import bus_run
from postroad.cli.context import Application, command
from postroad.cli.coordination_databases import coordination_databases
from postroad.cli.derived import print_rows
from postroad.coordination import resources as coordination
from postroad.exchange import resources as exchange
from postroad.intake import resources as intake
from postroad.operate.journey import STEPS, Search, found, searched
from postroad.postgres.errors import DatabaseUnavailable


@command()
@click.argument("text")
def find(application: Application, text: str, as_json: bool) -> None:
    """Show the path of a message, file or event across all components, in order of time.

    TEXT is an iid, a business key (see `postroad bus track`), a trace id, a correlation id, the id
    of an exchange message, process or event, or a file name.

    Example: postroad find 4711 --json
    """
    search = Search(text)
    runs = dict.fromkeys(searched(bus, exchange, intake), partial(bus_run, application))
    with coordination_databases(application) as databases:
        of_coordinator = partial(application.run, dsn=databases.coordinator)
        runs |= dict.fromkeys(searched(coordination), of_coordinator)
        while wanted := search.round():
            for resource in list(runs):
                try:
                    read = partial(found, resource=resource, texts=wanted)
                    search.add(resource, runs[resource](read))
                except DatabaseUnavailable as failure:
                    if resource.component != "coordination":
                        raise
                    # Its default database does not exist if coordination is not used.
                    if application.settings.coordination.coordinator_url is not None:
                        click.echo(f"{resource.name} cannot be read: {failure}", err=True)
                    del runs[resource]
    print_rows(STEPS, search.steps, as_json=as_json)
