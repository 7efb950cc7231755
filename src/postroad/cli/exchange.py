"""`postroad exchange`: serves and operates the exchange."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import psycopg
import uvloop
from rich.progress import Progress

from postroad.cli.command_service import Workers
from postroad.cli.components import SCHEMAS
from postroad.cli.context import Application, command, run_service
from postroad.cli.derived import MAX_LIMIT, action_command, list_command, resource_group
from postroad.cli.output import print_records, print_result
from postroad.cli.parts import PartContext
from postroad.exchange import operations, status
from postroad.exchange import resources as lists
from postroad.exchange.check import check as compare
from postroad.exchange.export import export
from postroad.exchange.files import Storage, open_storage
from postroad.exchange.server import ExchangeServer
from postroad.postgres import connect, install, migrator
from postroad.postgres.calls import Connection
from postroad.web.server import listen_shared

T = TypeVar("T")

FOLLOW_SECONDS = 10.0


@click.group()
def exchange() -> None:
    """Deliver files to ERP instances in two-phase processes.

    Example: postroad exchange serve --root /var/lib/postroad/exchange --port 8420
    """


def exchange_root(application: Application) -> Path | str:
    """Return the configured root, or the folder `exchange` in the data folder."""
    configured = application.settings.exchange.root
    if configured is not None:
        return configured
    return application.data_folder / "exchange"


def as_root(value: str) -> Path | str:
    """Parse an option: a folder, or `s3://bucket/prefix`."""
    return value if value.startswith("s3://") else Path(value)


def installed(application: Application, dsn: str) -> None:
    """Install missing schemas, so that the first command on a fresh database works.

    A configured database that has the schemas is not upgraded: that is the operator's decision.
    """
    with connect(dsn) as connection:
        for schema in SCHEMAS:
            is_there = migrator.status(connection, schema).is_installed
            connection.rollback()
            if application.named_database is None or not is_there:
                install(connection, schema)


@contextmanager
def exchange_connection(application: Application) -> Iterator[psycopg.Connection]:
    """Yield a connection to an installed journal; commits at the end."""
    with application.database() as dsn:
        installed(application, dsn)
        with connect(dsn, is_pooled=application.settings.database.is_pooled) as connection:
            yield connection


def exchange_run(
    application: Application,
    do: Callable[[Connection], Awaitable[T]],
    /,
    *,
    is_dry_run: bool = False,
) -> T:
    """Run an operation on an installed journal."""
    with application.database() as dsn:
        installed(application, dsn)
        return application.run(do, is_dry_run=is_dry_run, dsn=dsn)


def _run(application: Application, do: Any, /, *, is_dry_run: bool = False) -> Any:
    """Run an action, then wait until the serving exchange has moved the files."""
    result = exchange_run(application, do, is_dry_run=is_dry_run)
    if not is_dry_run:
        exchange_run(application, _files_moved)
    return result


async def _files_moved(connection: Connection) -> None:
    deadline = time.monotonic() + FOLLOW_SECONDS
    while time.monotonic() < deadline:
        facts = await status.server(connection)
        await connection.rollback()
        if not facts["pending"] or not facts["is_serving"]:
            return
        await asyncio.sleep(0.1)


for one in (
    resource_group(lists.CLIENTS, lists.ACTIONS, exchange_run, limit=MAX_LIMIT),
    resource_group(lists.DATABASES, lists.ACTIONS, exchange_run, limit=MAX_LIMIT),
    resource_group(lists.ROUTES, lists.ACTIONS, exchange_run, limit=MAX_LIMIT),
    list_command(lists.PROCESSES, exchange_run),
    list_command(lists.MESSAGES, exchange_run),
    list_command(lists.SERVERS, exchange_run),
    *(action_command(action, _run) for action in (lists.REQUEUE, lists.RESOLVE, lists.RELEASE)),
):
    exchange.add_command(one)


@command(exchange)
@click.option("--root", type=as_root, help="The root folder, or s3://bucket/prefix.")
@click.option("--host", help="The address to listen on; default 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0: any free one.")
@click.option("--workers", type=click.IntRange(1, 64), help="Number of processes; default 1.")
@click.option("--fd", type=int, help="Serve on this inherited listening socket, not on a port.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Serve HTTPS: certificate, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="The certificate's key, PEM.")
def serve(
    application: Application,
    root: Path | str | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    fd: int | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    as_json: bool,
) -> None:
    """Serve the exchange until Ctrl-C.

    With `--workers`, SIGHUP replaces the processes one by one.

    Example: postroad exchange serve --root ./exchange --port 8420
    """
    http = application.settings.http
    if tls_cert is not None:
        http = http.model_copy(update={"tls_cert": tls_cert, "tls_key": tls_key})
    with application.database() as dsn:
        installed(application, dsn)
        settings = application.settings.exchange.override(host=host, port=port)
        option, root = root, root or exchange_root(application)
        server: ExchangeServer | Workers
        if workers is not None and workers > 1:
            host = settings.host
            listeners = listen_shared(host, settings.port, workers)
            # Workers that replace others read the settings again.
            option = option if application.settings.exchange.root else root
            given = {"--root": option, "--host": host, "--tls-cert": tls_cert, "--tls-key": tls_key}
            options = [str(part) for pair in given.items() if pair[1] for part in pair]
            arguments = ["exchange", "serve", *options]
            url = f"{'https' if http.tls_cert else 'http'}://{host}:{listeners[0].getsockname()[1]}"
            server = Workers(PartContext(application, dsn), arguments, listeners, url=url)
        else:
            server = ExchangeServer(
                dsn,
                root,
                settings,
                is_pooled=application.settings.database.is_pooled,
                http=http,
                listener=None if fd is None else socket.socket(fileno=fd),
            )

        def announce() -> None:
            sentence = f"exchange serves on {server.url}/exchange/v1 (Ctrl-C stops it)"
            print_result({"url": server.url}, sentence, as_json=as_json, is_line=True)

        uvloop.run(run_service(server, announce))


@command(exchange)
@click.argument("database_id", metavar="DB")
@click.option("--from", "from_seq", type=int, help="Replay commits after this marker.")
@click.option("--skip", "is_skipped", is_flag=True, help="Accept the loss and continue.")
def replay(
    application: Application,
    database_id: str,
    from_seq: int | None,
    is_skipped: bool,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Requeue, from Log, the messages that a database lost when it was restored from a backup.

    Example: postroad exchange replay sales --dry-run
    """

    async def do(connection: Connection) -> int:
        if from_seq is None:
            # A recent report may still be corrected, and then there is nothing to replay.
            while seconds := await operations.restored_in(connection, database_id):
                await connection.rollback()
                await asyncio.sleep(seconds)
        return await operations.replay(
            connection, database_id, from_seq=from_seq, is_skipped=is_skipped
        )

    count = _run(application, do, is_dry_run=is_dry_run)
    result = {"database": database_id, "replayed": count, "is_dry_run": is_dry_run}
    sentence = f"{count} messages {'would be' if is_dry_run else 'are'} queued again"
    print_result(result, sentence, as_json=as_json)


@command(exchange)
@click.option("--fix", "is_fixing", is_flag=True, help="Repair the differences.")
@click.option("--root", type=as_root, help="The root. Default: the one that the server used last.")
def check(
    application: Application, is_fixing: bool, root: Path | str | None, as_json: bool
) -> None:
    """Compare rows and files: missing, changed, misplaced and unlisted files or objects.

    Exits with 1 if a file is missing or changed (`--fix` parks its message), or if another
    problem was found and not repaired. Refuses a root that is not the journal's.

    Example: postroad exchange check --fix
    """
    with exchange_connection(application) as connection, Progress(transient=True) as bar:
        storage = _storage(application, root)
        task = bar.add_task("comparing rows and folders", total=None)

        def advance(count: int) -> None:
            bar.advance(task, count)

        findings = compare(connection, storage, is_fixing=is_fixing, progress=advance)
    if findings or as_json:
        print_records(findings, as_json=as_json)
    else:
        click.echo("rows and folders agree")
    if not as_json and (found := exchange_run(application, status.migration)):
        click.echo(_migration_text(found))
    if any(not one.is_fixed or one.kind in ("missing", "changed") for one in findings):
        raise click.exceptions.Exit(1)


@command(exchange, "export")
@click.argument("database_id", metavar="DATABASE")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--root", type=as_root, help="The root. Default: the one that is served.")
def export_files(
    application: Application, database_id: str, folder: Path, root: Path | str | None, as_json: bool
) -> None:
    """Write the files of a database to a readable folder, from any store.

    Repeat it to bring the folder up to date. Exits with 1 if a file could not be written.

    Example: postroad exchange export sales /tmp/sales
    """
    with exchange_connection(application) as connection, Progress(transient=True) as bar:
        storage = _storage(application, root)
        task = bar.add_task("writing files", total=None)
        arguments = connection, storage, database_id, folder
        files, failures = export(*arguments, lambda count: bar.advance(task, count))
    result = {"database": database_id, "folder": str(folder), "files": files}
    failed = [{"name": move.name, "error": str(failure)} for move, failure in failures]
    text = f"{files} files of {database_id} are in {folder}"
    print_result({**result, "failed": failed}, text, as_json=as_json)
    for one in failed:
        click.echo(f"{one['name']}: {one['error']}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


@command(exchange)
def migration(application: Application, as_json: bool) -> None:
    """Show what is left in the second store of a migration.

    Example: postroad exchange migration --json
    """
    found = exchange_run(application, status.migration)
    print_result(found, _migration_text(found), as_json=as_json)


def _migration_text(found: dict[str, Any] | None) -> str:
    if found is None:
        return "there is one store, and no migration"
    there = found["second_root"]
    if writing := found["writing_to_second_root"]:
        return f"copying waits for servers that write to {there}: {', '.join(writing)}"
    if not found["files"]:
        return f"nothing is left in {there}: exchange.second_root may be removed from the settings"
    left = f"{found['files']} files ({found['bytes']} bytes) are left in {there}"
    return f"{left}, and copied to {found['root']}"


def _storage(application: Application, root: Path | str | None) -> Storage:
    """Return the storage of a root, by default of what was served last."""
    facts = exchange_run(application, status.server)
    root = root or facts["root_path"] or exchange_root(application)
    known = [facts["root_path"], facts["second_root_path"]] if facts["is_migrating"] else []
    is_store = str(root).startswith("s3://")
    second = next((one for one in known if one.startswith("s3://") != is_store), None)
    return open_storage(root, application.settings.exchange, second)
