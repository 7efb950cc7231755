"""`postroad bridge`: queues connected to other databases and RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, cast

import click
from prometheus_client import CollectorRegistry, start_http_server

from postroad.bridge import operations
from postroad.bridge import status as facts
from postroad.bridge.addresses import Addresses
from postroad.bridge.metrics import BridgeCollector
from postroad.bridge.resources import BRIDGES, DRAIN, PAUSE, REMOVE, RESUME, SHARDS, STATUS
from postroad.bridge.supervisor import BridgeSupervisor
from postroad.cli.context import Application, command, pass_application, run_service
from postroad.cli.derived import MAX_LIMIT, action_command, list_command
from postroad.cli.output import print_result
from postroad.cli.parts import PartContext
from postroad.service import Service
from postroad.settings import BridgeDefinition


@contextmanager
def _addresses(application: Application) -> Iterator[Addresses]:
    with application.database() as dsn:
        yield Addresses.of(dsn, application.settings.bridge)


def _run_at(
    application: Application, do: Callable[[Any], Coroutine[Any, Any, Any]], /, **_: bool
) -> Any:
    """Run a list or an action on all addresses; a dry run has no transaction to roll back."""
    with _addresses(application) as addresses:
        return asyncio.run(do(addresses))


@click.group()
def bridge() -> None:
    """Carry the messages of a queue to another database, or to and from RabbitMQ.

    A database or broker is given by its name in the settings (bridge.databases, bridge.brokers),
    by its address, or as `home`, the database of this installation.

    Example: postroad bridge add orders --from home --to warehouse
    """


@command(bridge)
@click.argument("queue")
@click.option("--from", "source", required=True, help="Database or broker that messages leave.")
@click.option("--to", "target", required=True, help="Database or broker that they go to.")
@click.option("--name", help="Name of the bridge; default: that of the queue.")
@click.option("--queue-at-target", help="Queue at the target; default: the same name.")
@click.option("--selector", help="SQL condition over t: which messages are carried.")
@click.option("--exchange", default="", help="RabbitMQ: the exchange; default: its default one.")
@click.option(
    "--exchange-kind",
    type=click.Choice(["direct", "topic", "fanout", "headers"]),
    default="topic",
    show_default=True,
    help="RabbitMQ: kind of the exchange, if it is created.",
)
@click.option("--routing-key", help="RabbitMQ: e.g. 'orders.{group}'; default: the queue.")
@click.option(
    "--binding-key", help="RabbitMQ: key of the queue's binding; default: the routing key."
)
@click.option(
    "--queue-kind",
    type=click.Choice(["quorum", "stream", "classic", "existing"]),
    default="quorum",
    show_default=True,
    help="RabbitMQ: kind of the queue, if it is created; existing creates nothing.",
)
def add(
    application: Application, /, name: str | None, is_dry_run: bool, as_json: bool, **given: Any
) -> None:
    """Add a bridge; the process that runs bridges starts it within seconds.

    Creates a consumer of the queue at the source, and the queue at the target if it is
    missing. Repeating the command changes nothing.

    Example: postroad bridge add orders --from db_a --to db_b --selector "(t.properties->'EU')='1'"

    Example: postroad bridge add orders --from home --to rabbit --routing-key 'orders.{group}'

    Example: postroad bridge add incoming --from rabbit --to home --queue-kind stream
    """
    definition = BridgeDefinition(**given)
    if is_dry_run:
        with _addresses(application) as addresses:
            kind = addresses.kind(definition.source, definition.target)
            addresses.refuse_secret(definition.source)
            addresses.refuse_secret(definition.target)
        facts, done = {"kind": kind, **definition.model_dump()}, "would be added"
    else:
        made = _run_at(application, lambda addresses: operations.add(addresses, definition, name))
        facts, done = asdict(made), f"bridge {made.name} added"
    there = facts["queue_at_target"] or facts["queue"]
    sentence = f"{done}: {facts['source']} {facts['queue']} → {facts['target']} {there}"
    if not is_dry_run:
        sentence += "\nrun it with: postroad bridge run   (postroad up does so, too)"
    print_result({**facts, "is_dry_run": is_dry_run}, sentence, as_json=as_json)


def _drain() -> click.Command:
    drain = action_command(DRAIN, _run_at)

    @pass_application
    def drain_and_wait(application: Application, /, wait: bool, **given: Any) -> None:
        begin(**given)
        if wait and not given["is_dry_run"]:
            name, is_quiet = given["name"], given["as_json"]
            _run_at(application, lambda addresses: _drained(addresses, name, is_quiet=is_quiet))

    begin, drain.callback = cast("Callable[..., None]", drain.callback), drain_and_wait
    drain.params.append(click.Option(["--wait"], is_flag=True, help="Return when it is drained."))
    return drain


async def _drained(addresses: Addresses, name: str, *, is_quiet: bool) -> None:
    (first,) = await facts.status(addresses, name)
    length = max(1, first.lag or 0)
    with click.progressbar(length=length, label="drained", hidden=is_quiet) as bar:
        while True:
            (now,) = await facts.status(addresses, name)
            bar.update(max(0, length - (now.lag or 0) - bar.pos))
            if now.state != "draining":
                return
            await asyncio.sleep(0.5)


@bridge.group()
def shards() -> None:
    """Show logical queues that are spread over several databases (settings bridge.shards).

    Example: postroad bridge shards list
    """


shards.add_command(list_command(SHARDS, _run_at, "list", argument="queue", limit=MAX_LIMIT))
for one in (
    list_command(BRIDGES, _run_at, "list", limit=MAX_LIMIT),
    list_command(STATUS, _run_at, "status", argument="name", limit=MAX_LIMIT),
    action_command(PAUSE, _run_at),
    action_command(RESUME, _run_at),
    action_command(REMOVE, _run_at),
    _drain(),
):
    bridge.add_command(one)


@command(bridge)
@click.argument("names", nargs=-1)
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after this time.")
@click.option(
    "--metrics-port", type=click.IntRange(1, 65535), help="Serve /metrics on this port, locally."
)
def run(
    application: Application,
    names: tuple[str, ...],
    seconds: float | None,
    metrics_port: int | None,
) -> None:
    """Run the bridges, or some of them, until Ctrl-C.

    Another process may run the same bridges: it takes over when this one ends.

    Example: postroad bridge run orders --metrics-port 9187
    """
    with _addresses(application) as addresses:
        supervisor = BridgeSupervisor(addresses, application.settings.bridge, only=names)
        if metrics_port is not None:
            registry = CollectorRegistry()
            registry.register(BridgeCollector(lambda: supervisor.statuses))
            start_http_server(metrics_port, addr="127.0.0.1", registry=registry)

        def announce() -> None:
            running = ", ".join(sorted(supervisor.running)) or "no bridges yet"
            click.echo(f"running {running}", err=True)

        asyncio.run(run_service(supervisor, announce, seconds))
    click.echo("stopped")


def bridges(context: PartContext) -> Service:
    """Create the service that runs every bridge of this database."""
    settings = context.application.settings.bridge
    return BridgeSupervisor(Addresses.of(context.dsn, settings), settings)
