"""`postroad bridge shards`: one logical queue over several databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TypeVar

import click

from postroad.bridge import shards as operations
from postroad.bridge.addresses import Addresses
from postroad.bus.payload import PAYLOADS, Payload
from postroad.cli.context import Application, pass_application
from postroad.cli.output import json_option, print_json, print_table

T = TypeVar("T")


def _ask(application: Application, call: Callable[[Addresses], Awaitable[T]]) -> T:
    with application.database() as dsn:
        addresses = Addresses.of(dsn, application.settings.bridge)

        async def answer() -> T:
            return await call(addresses)

        return asyncio.run(answer())


@click.group()
def shards() -> None:
    """Spread one logical queue over several databases.

    Example: postroad bridge shards list
    """


@shards.command("list")
@click.argument("queue", required=False)
@json_option
@pass_application
def list_(application: Application, queue: str | None, as_json: bool) -> None:
    """List the shards of one logical queue or of all, and their status.

    Example: postroad bridge shards list orders
    """

    async def read(addresses: Addresses) -> list[operations.ShardStatus]:
        await operations.settle_shards(addresses, queue)
        return await operations.shard_statuses(addresses, queue)

    found = _ask(application, read)
    if as_json:
        print_json([asdict(each) for each in found])
    elif not found:
        click.echo("there are no shards; add one with: postroad bridge shards add")
    else:
        columns = ("logical", "name", "state", "weight", "depth", "posted_per_second", "problem")
        print_table(columns, [[getattr(each, name) for name in columns] for each in found])


@shards.command()
@click.argument("queue")
@click.argument("database")
@click.option("--name", help="Name of the shard; default: that of the database.")
@click.option("--weight", default=1, show_default=True, help="Its share compared with others.")
@click.option("--payload", type=click.Choice(PAYLOADS), default="hstore", show_default=True)
@json_option
@pass_application
def add(
    application: Application,
    queue: str,
    database: str,
    name: str | None,
    weight: int,
    payload: Payload,
    as_json: bool,
) -> None:
    """Add a database to a logical queue; posts go there within a second.

    Example: postroad bridge shards add orders db_c
    """
    _ask(
        application,
        lambda addresses: operations.add_shard(
            addresses, queue, database, name=name, weight=weight, payload=payload
        ),
    )
    _say(queue, name or database, "added", as_json)


@shards.command()
@click.argument("queue")
@click.argument("shard")
@json_option
@pass_application
def drain(application: Application, queue: str, shard: str, as_json: bool) -> None:
    """Let a shard have no more posts; workers empty it.

    Example: postroad bridge shards drain orders db_c
    """
    _ask(application, lambda addresses: operations.drain_shard(addresses, queue, shard))
    _say(queue, shard, "is draining", as_json)


@shards.command()
@click.argument("queue")
@click.argument("shard")
@json_option
@pass_application
def remove(application: Application, queue: str, shard: str, as_json: bool) -> None:
    """Forget a shard that is drained; its database stays as it is.

    Example: postroad bridge shards remove orders db_c
    """
    _ask(application, lambda addresses: operations.remove_shard(addresses, queue, shard))
    _say(queue, shard, "removed", as_json)


def _say(queue: str, shard: str, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"queue": queue, "shard": shard, "what": what})
    else:
        click.echo(f"shard {shard} of {queue} {what}")
