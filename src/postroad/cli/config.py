"""`postroad config`: the effective settings and their sources."""

from __future__ import annotations

import click

from postroad.cli.context import Application, command
from postroad.cli.output import print_json, print_table


@click.group()
def config() -> None:
    """Show the effective settings."""


@command(config)
def show(application: Application, as_json: bool) -> None:
    """Print every setting with its value and its source; passwords are masked.

    Example: POSTROAD_BUS__LEASE=1m postroad config show
    """
    found = application.loaded.effective()
    if as_json:
        print_json({one.name: {"value": one.value, "source": one.source} for one in found})
    else:
        rows = [(one.name, one.value, one.source) for one in found]
        print_table(("setting", "value", "source"), rows)
