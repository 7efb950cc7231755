"""`postroad bridge shards`: one logical queue over several databases."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import click

from postroad.bridge.addresses import Addresses
from postroad.bridge.status import shard_statuses
from postroad.cli.context import Application, pass_application
from postroad.cli.output import json_option, print_json, print_table


@click.group()
def shards() -> None:
    """Show logical queues that are spread over several databases (settings bridge.shards).

    Example: postroad bridge shards list
    """


@shards.command("list")
@click.argument("queue", required=False)
@json_option
@pass_application
def list_(application: Application, queue: str | None, as_json: bool) -> None:
    """List the shards of one logical queue or of all, and how many messages wait in each.

    Example: postroad bridge shards list orders
    """
    with application.database() as dsn:
        addresses = Addresses.of(dsn, application.settings.bridge)
        found = asyncio.run(shard_statuses(addresses, queue))
    if as_json:
        print_json([asdict(each) for each in found])
    elif not found:
        click.echo("there are no shards; name them in the settings: bridge.shards")
    else:
        columns = ("logical", "name", "weight", "depth", "posted_per_second", "problem")
        print_table(columns, [[getattr(each, name) for name in columns] for each in found])
