"""`postroad intake`: imports files from SFTP servers into a store."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from postroad import logs
from postroad.cli.context import Application, command, run_service
from postroad.cli.derived import MAX_LIMIT, action_command, list_command, resource_group
from postroad.cli.intake_servers import key, servers
from postroad.cli.output import print_json, print_table
from postroad.cli.parts_intake import intake_context, make_server
from postroad.intake import status as facts
from postroad.intake.context import IntakeContext
from postroad.intake.resources import ACTIONS, FILES, RETRY, SERVERS, STORES, TRANSFERS
from postroad.operate import Row
from postroad.postgres.calls import Connection
from postroad.postgres.server_user import make_data_folder
from postroad.service import Together

if TYPE_CHECKING:
    from postroad.web.server import WebServer

CONTROL_PROCESSES = 2
WATCH_INTERVAL_SECONDS = 0.5
OPEN_STATUSES = ("discovered", "downloading", "downloaded", "uploading_to_minio")


@click.group()
def intake() -> None:
    """Import files from SFTP servers into a store: each version once, with one notice.

    Example: postroad intake servers add --host sftp.example.com --user acme --key-file id_ed25519
    """


for one in (
    servers,
    resource_group(FILES, ACTIONS, Application.run),
    action_command(RETRY, Application.run),
    list_command(TRANSFERS, Application.run, limit=MAX_LIMIT),
    list_command(STORES, Application.run, limit=MAX_LIMIT),
    key,
):
    intake.add_command(one)


@command(intake)
@click.option("--concurrency", type=click.IntRange(min=1), help="Processes; default: CPU cores.")
@click.option(
    "--pool",
    type=click.Choice(["prefork", "solo", "threads"]),
    default="prefork",
    show_default=True,
    help="How tasks run in parallel.",
)
@click.option("--beat", "has_beat", is_flag=True, help="Run the scheduler, too.")
@click.option(
    "--only",
    type=click.Choice(["transfers", "control"]),
    help="Only import files, or only do other tasks; default: both, in separate processes.",
)
def worker(
    application: Application, concurrency: int | None, pool: str, has_beat: bool, only: str | None
) -> None:
    """Run a Celery worker that scans servers and imports files.

    The processes of --concurrency import files. Two more scan servers and send notices, so that
    long transfers do not delay them.

    Example: postroad intake worker --concurrency 4 --beat
    """
    # Celery, FastAPI and brokers are slow to import, so only commands that need them import them.
    from postroad.intake.celery_worker import QUEUE, TRANSFER_QUEUE, run_workers

    level = application.settings.logs.level
    workers: dict[str, dict[str, Any]] = {
        "transfers": {"queues": TRANSFER_QUEUE, "pool_cls": pool, "concurrency": concurrency},
        "control": {"queues": QUEUE, "concurrency": CONTROL_PROCESSES},
    }
    if only is not None:
        workers = {only: workers[only]}
    if has_beat:
        first = next(iter(workers.values()))
        first |= {"beat": True, "schedule_filename": _schedule_file(application)}
    with intake_context(application) as context:
        status = run_workers(_application(application, context), level, workers)
    sys.exit(status)


@command(intake)
def beat(application: Application) -> None:
    """Run the scheduler: scans of servers, recovery of stuck files.

    Example: postroad intake beat
    """
    with intake_context(application) as context:
        level, schedule = application.settings.logs.level, _schedule_file(application)
        # Not Celery.start, which discards the exit status of its command.
        _application(application, context).Beat(loglevel=level, schedule=schedule).run()


@command(intake)
@click.option("--host", help="The address to listen on; default: that of the settings.")
@click.option("--port", type=click.IntRange(0, 65535), help="0: any free port.")
def serve(application: Application, host: str | None, port: int | None) -> None:
    """Serve the web API, and publish notices to RabbitMQ if it is configured.

    Example: postroad intake serve --port 8140
    """
    with intake_context(application) as context:
        server = make_server(application, context, host=host, port=port)
        asyncio.run(_serve(context, server))


@command(intake)
def outbox(application: Application) -> None:
    """Publish notices to RabbitMQ, without the web API.

    Example: postroad intake outbox
    """
    with intake_context(application) as context:
        if context.settings.amqp_url is None:
            raise click.UsageError("RabbitMQ is not configured: POSTROAD_INTAKE__AMQP_URL=amqp://…")
        asyncio.run(_serve(context))


@command(intake)
def status(application: Application, as_json: bool) -> None:
    """Show the files by status, the servers and the failing stores.

    Example: postroad intake status
    """
    found: dict[str, Any] = {
        "files": application.run(facts.counts),
        "servers": application.run(SERVERS.all),
        "stores": application.run(STORES.all),
    }
    if as_json:
        print_json(found)
        return
    counted = [(name, count) for name, count in found["files"].items() if count]
    print_table(("status", "files"), counted or [("-", 0)])
    for store in found["stores"]:
        if store["failures"]:
            click.secho(f"store {store['store']}: {store['problem']}", fg="red")


@command(intake)
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after this time.")
@click.option(
    "--until-done", is_flag=True, help="Stop when no file is waiting or being transferred."
)
def watch(application: Application, seconds: float | None, until_done: bool) -> None:
    """Show running transfers as progress bars until Ctrl-C.

    Example: postroad intake watch
    """
    console = Console()
    rates = DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    columns = TextColumn("{task.description}"), BarColumn(), *rates
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    bars: dict[int, TaskID] = {}

    async def follow(connection: Connection) -> int:
        began = time.monotonic()
        counts = {"completed": 0}
        while seconds is None or time.monotonic() - began < seconds:
            moving = await TRANSFERS.all(connection)
            _show(progress, bars, moving)
            counts = await facts.counts(connection)
            await connection.rollback()
            if until_done and not moving and not any(counts[name] for name in OPEN_STATUSES):
                break
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
        return counts["completed"]

    with progress:
        completed = application.run(follow)
    if not console.is_terminal:
        click.echo(f"{len(bars)} transfers were shown, {completed} files are completed")


def _show(progress: Progress, bars: dict[int, TaskID], moving: Sequence[Row]) -> None:
    now = {row["id"] for row in moving}
    for row in moving:
        if row["id"] not in bars:
            name = f"{row['server']}/{row['filename']}"
            bars[row["id"]] = progress.add_task(name[-60:], total=row["filesize"])
        progress.update(bars[row["id"]], completed=row["bytes_done"])
    for file_id in bars.keys() - now:
        progress.update(bars[file_id], visible=False)


def _application(application: Application, context: IntakeContext) -> Any:
    from postroad.intake.celery_worker import create_app

    settings = application.settings.logs
    logs.set_up(level=settings.level, shape=settings.shape)
    return create_app(context)


def _schedule_file(application: Application) -> str:
    return str(make_data_folder(application.data_folder) / "intake-beat")


async def _serve(context: IntakeContext, *servers: WebServer) -> None:
    from postroad.intake.notice import open_outbox

    publisher = await open_outbox(context.dsn, context.settings)

    def announce() -> None:
        for server in servers:
            click.echo(f"web API at {server.url}/intake/v1, described at {server.url}/intake/docs")
        if publisher is not None:
            click.echo("notices are also sent to RabbitMQ")

    services = [*servers, *([publisher] if publisher is not None else [])]
    await run_service(Together("intake", services), announce)
