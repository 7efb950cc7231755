"""`postroad up`: everything there is, on the embedded PostgreSQL unless a database is named."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from postroad.cli.context import Application, pass_application
from postroad.cli.output import print_table
from postroad.cli.parts import Part, find_part, present_parts
from postroad.cli.ports import check_port, choose_port
from postroad.cli.rooms import SCHEMAS
from postroad.cli.spawning import NurseryService
from postroad.cli.supervisor import Child, ChildPlan, Supervisor
from postroad.cli.up_lock import UpLock
from postroad.cli.up_report import Reporter
from postroad.console.accounts import FIRST_ACCOUNT, Accounts
from postroad.postgres import connect, install
from postroad.postgres.connections import open_async_pool
from postroad.postgres.embedded_service import EmbeddedService
from postroad.settings import masked_database_url

__all__ = ["up"]

# Each service is the command `serve`.
COMMAND = "postroad.cli.serve"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller asked for."""

    seconds: float | None
    rate: float
    has_sample: bool
    host: str | None
    port: int | None
    only: tuple[str, ...] = ()


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after that long.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1, max=5_000),
    default=20.0,
    show_default=True,
    help="Sample orders per second.",
)
@click.option(
    "--sample/--no-sample",
    "sample",
    default=None,
    help="Run the sample partners; default: on the embedded database only.",
)
@click.option("--host", help="Address to listen on; default: 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; default: 8080, 0 is any.")
@click.option(
    "--only",
    multiple=True,
    metavar="SERVICE",
    help="Run this service and not all; may be repeated. `postroad serve` lists them.",
)
@pass_application
def up(
    application: Application,
    seconds: float | None,
    rate: float,
    sample: bool | None,
    host: str | None,
    port: int | None,
    only: tuple[str, ...],
) -> None:
    """Run PostgreSQL, all services and sample partners; the console shows what moves.

    Services that end are started again. Ctrl-C stops everything.

    Example: postroad up --port 9090 --no-sample
    """
    has_sample = application.named_database is None if sample is None else sample
    for name in only:
        if find_part(name) is None:
            raise click.UsageError(f"there is no service {name}; see `postroad serve`")
    http = application.settings.http
    folder = application.data_folder
    with UpLock(folder, application.named_database) as lock:
        wishes = Wishes(seconds, rate, has_sample, host, port, only)
        check_port(host or http.host, http.port if port is None else port)
        asyncio.run(_up(application, wishes, lock))
    click.echo("stopped")


async def _up(application: Application, wishes: Wishes, lock: UpLock) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    # Left in reverse order: who uses the server goes before the server.
    async with AsyncExitStack() as running:
        parts = _parts(wishes)
        # It imports what services stand on, while the database starts.
        nursery = NurseryService([COMMAND, *dict.fromkeys(part.module for part in parts)])
        await running.enter_async_context(nursery)
        dsn = application.named_database
        if dsn is None:
            click.echo("starting PostgreSQL …")
            embedded = EmbeddedService(application.embedded_server())
            await running.enter_async_context(embedded)
            dsn = embedded.dsn()
        await asyncio.to_thread(_install, dsn)
        password = await _first_password(dsn)
        supervisor = Supervisor(nursery.spawn)
        # Left after the children have: its last report is that none runs here any more.
        await running.enter_async_context(Reporter(dsn, supervisor))
        running.push_async_callback(supervisor.stop)
        starting = asyncio.create_task(_start_all(application, wishes, parts, dsn, supervisor))
        asked = asyncio.create_task(stopping.wait())
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not starting.done():
            starting.cancel()
            return
        starting.result()
        url = _url(supervisor)
        lock.tell(url)
        _print_addresses(application, dsn, url, password)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wishes.seconds):
                await stopping.wait()
        click.echo("stopping …")


def _parts(wishes: Wishes) -> list[Part]:
    return [
        part
        for part in present_parts(has_sample=wishes.has_sample or bool(wishes.only))
        if not wishes.only or part.name in wishes.only
    ]


async def _start_all(
    application: Application,
    wishes: Wishes,
    parts: list[Part],
    dsn: str,
    supervisor: Supervisor,
) -> None:
    told = {
        "dsn": dsn,
        "host": wishes.host,
        "port": wishes.port,
        "rate": wishes.rate,
        "has_sample": wishes.has_sample,
        "ports": _ports(application, wishes),
    }
    click.echo(f"starting {', '.join(part.name for part in parts)} …")
    await supervisor.start(*(_plan(application, part, told) for part in parts))


def _plan(application: Application, part: Part, told: dict[str, Any]) -> ChildPlan:
    log_file = _logs(application) / f"{part.name}.log"
    serve = [*application.child_flags(), "serve", part.name, "--child"]
    return ChildPlan(part.name, serve, told, part.stage, log_file)


def _logs(application: Application) -> Path:
    return application.data_folder / "logs"


def _ports(application: Application, wishes: Wishes) -> dict[str, int]:
    """Choose the ports of the rooms' own servers; they listen on loopback behind the one port."""
    return {
        room: choose_port("127.0.0.1", section.port, is_free_wanted=wishes.port == 0)
        for room in ("exchange", "intake", "coordination")
        if (section := getattr(application.settings, room, None)) is not None
    }


def _install(dsn: str) -> None:
    with connect(dsn) as connection:
        for schema in SCHEMAS:
            install(connection, schema)


async def _first_password(dsn: str) -> str | None:
    pool = await open_async_pool(dsn, application_name="postroad up")
    try:
        return await Accounts(pool).ensure_first()
    finally:
        await pool.close()


def _url(supervisor: Supervisor) -> str | None:
    web: Child | None = next((one for one in supervisor.children if one.name == "web"), None)
    return str(web.answer["url"]) if web is not None and "url" in web.answer else None


def _print_addresses(
    application: Application, dsn: str, url: str | None, password: str | None
) -> None:
    rows: list[tuple[str, str]] = []
    if url is not None:
        rows += [
            ("console", f"{url}/console"),
            ("login", FIRST_ACCOUNT),
            ("password", password or "as told before the first login; a new one: "
             f"postroad console password {FIRST_ACCOUNT}"),
            ("interfaces", f"{url}/docs"),
            ("metrics", f"{url}/metrics"),
            ("health", f"{url}/healthz, {url}/readyz"),
        ]  # fmt: skip
    kind = "named" if application.named_database else "embedded"
    rows.append((f"database ({kind})", masked_database_url(dsn)))
    if kind == "embedded":
        rows.append(("look inside", f"psql '{masked_database_url(dsn)}'"))
        rows.append(("data folder", str(application.embedded_server().cluster.home.parent)))
    rows.append(("logs", str(_logs(application))))
    click.echo()
    print_table(("what", "where"), rows)
    if password is not None:
        click.echo("\nThe password is shown this once; the database keeps only its hash.")
        click.echo("Until somebody has signed in with it, each start makes a new one.")
    click.echo("\nCtrl-C stops everything.")
