"""`postroad up`: everything there is, on the embedded PostgreSQL unless a database is named."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass

import click
import psycopg

from postroad.bridge import Addresses, BridgeHouse
from postroad.bus import AsyncBus, AsyncWorker, BusError, WorkerSettings
from postroad.cli.context import Application, pass_application
from postroad.cli.output import print_table
from postroad.cli.rates import RatesDisplay
from postroad.cli.rooms import SCHEMAS
from postroad.cli.sample import Meter, SampleProducer, create_sample_queue, serve_sample
from postroad.postgres import connect, install
from postroad.postgres.embedded_service import EmbeddedService
from postroad.postgres.errors import DatabaseUnavailable
from postroad.settings import masked_database_url

__all__ = ["up"]

DISPLAY_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller asked for."""

    seconds: float | None
    rate: float
    has_sample: bool


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after that long.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1, max=5_000),
    default=100.0,
    show_default=True,
    help="Sample messages posted per second.",
)
@click.option(
    "--sample/--no-sample",
    "sample",
    default=None,
    help="Run the sample partners; default: on the embedded database only.",
)
@pass_application
def up(application: Application, seconds: float | None, rate: float, sample: bool | None) -> None:
    """Run PostgreSQL, maintenance and sample partners, and show what moves.

    Ctrl-C stops everything.

    Example: postroad up --seconds 30 --rate 500
    """
    has_sample = application.named_database is None if sample is None else sample
    asyncio.run(_up(application, Wishes(seconds, rate, has_sample)))


async def _up(application: Application, wishes: Wishes) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    # Left in reverse order: who uses the server goes before the server.
    async with AsyncExitStack() as running:
        dsn = application.named_database
        if dsn is None:
            embedded = EmbeddedService(application.embedded_server())
            await running.enter_async_context(embedded)
            dsn = embedded.dsn()
        await asyncio.to_thread(_install, dsn)
        _print_addresses(application, dsn)
        is_pooled = application.settings.database.is_pooled
        bus = await running.enter_async_context(AsyncBus(dsn, listen=not is_pooled))
        worker = AsyncWorker(
            dsn,
            WorkerSettings(
                poll_interval=application.settings.bus.poll_interval,
                maintenance_interval=application.settings.bus.maintenance_interval,
                listen=not is_pooled,
            ),
        )
        meter = Meter() if wishes.has_sample else None
        if meter is not None:
            await create_sample_queue(bus)
            serve_sample(worker, meter)
        await running.enter_async_context(worker)
        bridges = application.settings.bridge
        await running.enter_async_context(BridgeHouse(Addresses.of(dsn, bridges), bridges))
        if meter is not None:
            await running.enter_async_context(SampleProducer(bus, wishes.rate, meter))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wishes.seconds):
                await _show_rates(bus, meter, stopping)
    click.echo("stopped")


def _install(dsn: str) -> None:
    with connect(dsn) as connection:
        for schema in SCHEMAS:
            install(connection, schema)


def _print_addresses(application: Application, dsn: str) -> None:
    kind = "named" if application.named_database else "embedded"
    rows = [(f"database ({kind})", masked_database_url(dsn))]
    if kind == "embedded":
        rows.append(("look inside", f"psql '{masked_database_url(dsn)}'"))
        rows.append(("data folder", str(application.embedded_server().cluster.home.parent)))
    print_table(("what", "where"), rows)
    click.echo()


async def _show_rates(bus: AsyncBus, meter: Meter | None, stopping: asyncio.Event) -> None:
    with RatesDisplay() as display:
        while not stopping.is_set():
            try:
                display.show(await bus.status(), meter.rates() if meter else {})
            except (psycopg.Error, BusError, DatabaseUnavailable, OSError) as failure:
                display.say(f"the database is away: {str(failure).strip().splitlines()[0]}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DISPLAY_INTERVAL_SECONDS):
                    await stopping.wait()
