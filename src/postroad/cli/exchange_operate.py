"""`postroad exchange`: lists and actions (derived from `exchange.resources`), check and replay."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

from postroad.cli.context import Application, command
from postroad.cli.derived import MAX_LIMIT, action_command, list_command, resource_group
from postroad.cli.exchange_context import as_root, exchange_connection, exchange_root, exchange_run
from postroad.cli.output import print_records, print_result
from postroad.exchange import operations, status
from postroad.exchange import resources as lists
from postroad.exchange.check import check as compare
from postroad.exchange.export import export
from postroad.exchange.files import Storage, open_storage
from postroad.postgres.calls import Connection

FOLLOW_SECONDS = 10.0


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


@command()
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
            # A very recent report may still be corrected; then there is nothing to replay.
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


@command()
@click.option("--fix", "is_fixing", is_flag=True, help="Repair the differences.")
@click.option(
    "--root",
    type=as_root,
    help="The root. Default: the one that the server used last.",
)
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
        findings = compare(
            connection,
            storage,
            is_fixing=is_fixing,
            progress=lambda count: bar.advance(task, count),
        )
    if findings or as_json:
        columns = ("kind", "database", "folder", "name", "detail", "is_fixed")
        rows = [{name: getattr(one, name) for name in columns} for one in findings]
        print_records(rows, as_json=as_json)
    else:
        click.echo("rows and folders agree")
    if any(not one.is_fixed or one.kind in ("missing", "changed") for one in findings):
        raise click.exceptions.Exit(1)


@command(name="export")
@click.argument("database_id", metavar="DATABASE")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--root", type=as_root, help="The root. Default: the one that is served.")
def export_files(
    application: Application,
    database_id: str,
    folder: Path,
    root: Path | str | None,
    as_json: bool,
) -> None:
    """Write the folders of a database as people read them, whatever the store is.

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


def _storage(application: Application, root: Path | str | None) -> Storage:
    """Return the storage of a root, by default of the one that was served last."""
    served = exchange_run(application, status.server)["root_path"]
    return open_storage(root or served or exchange_root(application), application.settings.exchange)


COMMANDS = (
    *(
        resource_group(one, lists.ACTIONS, exchange_run, limit=MAX_LIMIT)
        for one in (lists.CLIENTS, lists.DATABASES, lists.ROUTES)
    ),
    *(list_command(one, exchange_run) for one in (lists.PROCESSES, lists.MESSAGES, lists.SERVERS)),
    *(action_command(one, _run) for one in (lists.REQUEUE, lists.RESOLVE, lists.RELEASE)),
    replay,
    check,
    export_files,
)
