"""`postroad up`: all services in one process; on the embedded PostgreSQL if none is configured."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
import uvloop

from postroad.bus import spans
from postroad.cli.components import install_all
from postroad.cli.context import Application, command, stop_event
from postroad.cli.log_file import ServiceLogStream
from postroad.cli.output import print_table
from postroad.cli.parts import PARTS, Part, PartContext, find_part
from postroad.cli.supervisor import Reporter, ServicePlan, Supervisor
from postroad.cli.up_lock import up_lock
from postroad.console.accounts import FIRST_ACCOUNT, Accounts
from postroad.postgres.binaries import find_binaries
from postroad.postgres.connections import open_async_pool
from postroad.postgres.embedded import EmbeddedService
from postroad.service import first_of
from postroad.settings import masked_database_url
from postroad.web.mounts import Mounts
from postroad.web.server import listen


@command()
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after this time.")
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
@click.option("--port", type=click.IntRange(0, 65535), help="Port; default: 8080; 0: any free one.")
@click.option(
    "--only",
    multiple=True,
    metavar="SERVICE",
    help="Run only this service; may be repeated. `postroad serve` lists them.",
)
def up(
    application: Application, /, sample: bool | None, only: tuple[str, ...], **wishes: Any
) -> None:
    """Run PostgreSQL, all services and sample partners; the console shows the message flow.

    Services that end are restarted. Ctrl-C stops everything.

    Example: postroad up --port 9090 --no-sample
    """
    wishes["has_sample"] = application.named_database is None if sample is None else sample
    for name in only:
        if find_part(name) is None:
            raise click.UsageError(f"there is no service {name}; see `postroad serve`")
    parts = [part for part in PARTS if part.is_there()]
    if only:
        parts = [part for part in parts if part.name in only]
    elif not wishes["has_sample"]:
        parts = [part for part in parts if not part.is_sample]
    http = application.settings.http.override(host=wishes["host"], port=wishes["port"])
    with up_lock(application.data_folder, application.named_database) as set_url:
        # Check this before the database is started.
        listen(http.host, http.port).close()
        application.set_up_logs(ServiceLogStream())
        spans.record()
        uvloop.run(_up(application, parts, wishes, set_url))
    click.echo("stopped")


async def _up(
    application: Application,
    parts: list[Part],
    wishes: dict[str, Any],
    set_url: Callable[[str | None], None],
) -> None:
    stopping = stop_event()
    # Exited in reverse order: the services end before the database.
    async with AsyncExitStack() as running:
        # The services are imported while the database starts.
        importing = asyncio.create_task(asyncio.to_thread(_import, parts))
        dsn = application.named_database
        if dsn is None:
            click.echo("starting PostgreSQL …")
            embedded = EmbeddedService(application.embedded_server())
            await running.enter_async_context(embedded)
            dsn = embedded.dsn()
        await asyncio.to_thread(install_all, dsn)
        async with await open_async_pool(dsn, application_name="postroad up") as pool:
            password = await Accounts(pool).ensure_first()
        await importing
        supervisor = Supervisor()
        # Exited after the services: its last report states that no service runs here.
        await running.enter_async_context(Reporter(dsn, supervisor))
        running.push_async_callback(supervisor.stop)
        mounts = Mounts(part.prefix for part in parts if part.prefix)
        # Faults are only offered for the sample, on a database that only this installation uses.
        is_safe = wishes["has_sample"] and application.named_database is None
        crash = supervisor.crash if is_safe else None
        logs = application.data_folder / "logs"
        context = PartContext(application, dsn, wishes, mounts, crash, supervisor.restart, logs)
        click.echo(f"starting {', '.join(part.name for part in parts)} …")
        plans = [_plan(context, part, logs) for part in parts]
        starting = asyncio.create_task(supervisor.start(*plans))
        reporting = asyncio.create_task(supervisor.report_delays(click.echo))
        await first_of(starting, stopping)
        reporting.cancel()
        if not starting.done():
            starting.cancel()
            return
        starting.result()
        set_url(mounts.url)
        _print_addresses(context, mounts.url, password)
        if wishes["seconds"] is not None:
            asyncio.get_running_loop().call_later(wishes["seconds"], stopping.set)
        await supervisor.join_or(stopping)
        click.echo("stopping …")


def _import(parts: list[Part]) -> None:
    for part in parts:
        # A module that cannot be imported fails again, with the reason, when its service starts.
        with contextlib.suppress(Exception):
            part.load()


def _plan(context: PartContext, part: Part, logs: Path) -> ServicePlan:
    make, log_file = partial(part.service, context), logs / f"{part.name}.log"
    return ServicePlan(part.name, make, part.stage, log_file, is_vital=part.name == "web")


def _print_addresses(context: PartContext, url: str | None, password: str | None) -> None:
    application, database = context.application, masked_database_url(context.dsn)
    new_one = f"a new one: postroad console password {FIRST_ACCOUNT}"
    rows: list[tuple[str, str]] = []
    if url is not None:
        if context.crash is not None:
            rows.append(("start here", f"{url}/console/tour"))
        rows += [
            ("console", f"{url}/console"),
            ("login", FIRST_ACCOUNT),
            ("password", password or f"printed before the first login; {new_one}"),
            ("interfaces", f"{url}/docs"),
            ("metrics", f"{url}/metrics"),
            ("health", f"{url}/healthz, {url}/readyz"),
        ]
    if application.named_database:
        rows.append(("database (named)", database))
    else:
        binaries = find_binaries(application.settings.embedded.bin_folder)
        psql = "psql" if shutil.which("psql") else binaries.program("psql")
        rows += [
            ("database (embedded)", database),
            ("psql", f"{psql} '{database}'"),
            ("data folder", str(application.data_folder)),
        ]
    rows.append(("logs", str(context.logs)))
    click.echo()
    print_table(("what", "where"), rows)
    if password is not None:
        click.echo("\nThe password is shown only once; the database stores its hash.")
        click.echo("Until someone has signed in with it, each start generates a new one.")
    click.echo("\nCtrl-C stops everything.")
