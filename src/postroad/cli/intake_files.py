"""`postroad intake files`, `retry`, `watch`: what came in, what comes in, what did not."""

from __future__ import annotations

import time
from typing import Any

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

from postroad.cli.context import Application, pass_application
from postroad.cli.output import dry_run_option, json_option, print_json, print_table
from postroad.intake import operations, status

LOOK_SECONDS = 0.5


@click.group()
def files() -> None:
    """Files: list, show, retry, skip, reimport.

    Example: postroad intake files list --status failed
    """


@files.command("list")
@click.option("--status", "wanted", type=click.Choice(status.FILE_STATUSES))
@click.option("--server", help="Of one server, by name or id.")
@click.option("--name", help="With this in their name.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
@json_option
@pass_application
def list_files(
    application: Application,
    wanted: str | None,
    server: str | None,
    name: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List files, the latest first.

    Example: postroad intake files list --status failed --server acme
    """
    with application.connection() as connection:
        found = status.files(connection, status=wanted, server=server, name=name, limit=limit)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no files")
    else:
        columns = ["id", "server", "filename", "version", "filesize", "status", "bytes_done"]
        columns += ["attempts", "updated_at", "error_message"]
        print_table(columns, [[row[column] for column in columns] for row in found])


@files.command()
@click.argument("file_id", type=int)
@json_option
@pass_application
def show(application: Application, file_id: int, as_json: bool) -> None:
    """Show one file and what happened to it.

    Example: postroad intake files show 42
    """
    with application.connection() as connection:
        row = status.file(connection, file_id)
        history = status.history(connection, file_id)
    if as_json:
        print_json({**row, "history": history})
        return
    print_table(("what", "value"), list(row.items()))
    click.echo()
    print_table(
        ("at", "status", "note"), [[one["at"], one["status"], one["note"]] for one in history]
    )


@files.command()
@click.argument("ids", nargs=-1, type=int, required=True)
@dry_run_option
@json_option
@pass_application
def skip(application: Application, ids: tuple[int, ...], is_dry_run: bool, as_json: bool) -> None:
    """Do not import files; running transfers of them stop.

    Example: postroad intake files skip 42 43
    """
    _change(application, "skip", list(ids), is_dry_run, as_json)


@files.command()
@click.argument("ids", nargs=-1, type=int, required=True)
@dry_run_option
@json_option
@pass_application
def reimport(
    application: Application, ids: tuple[int, ...], is_dry_run: bool, as_json: bool
) -> None:
    """Fetch completed files again and announce them anew.

    Example: postroad intake files reimport 42
    """
    _change(application, "reimport", list(ids), is_dry_run, as_json)


@click.command()
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "is_all", is_flag=True, help="Every file that has failed.")
@click.option("--server", help="With --all: of one server only.")
@dry_run_option
@json_option
@pass_application
def retry(
    application: Application,
    ids: tuple[int, ...],
    is_all: bool,
    server: str | None,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Try files again that failed, vanished, were superseded or skipped, or wait.

    Example: postroad intake retry --all
    """
    wanted = list(ids)
    if is_all:
        with application.connection() as connection:
            found = status.files(connection, status="failed", server=server, limit=1_000_000)
        wanted += [row["id"] for row in found]
    elif not wanted:
        raise click.UsageError("name files, or --all for every one that has failed")
    _change(application, "retry", wanted, is_dry_run, as_json)


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after that long.")
@click.option("--until-done", is_flag=True, help="Stop when nothing waits or moves any more.")
@pass_application
def watch(application: Application, seconds: float | None, until_done: bool) -> None:
    """Show running transfers as progress bars until Ctrl-C.

    Example: postroad intake watch
    """
    console = Console()
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    began = time.monotonic()
    bars: dict[int, TaskID] = {}
    with application.connection(autocommit=True) as connection, progress:
        while seconds is None or time.monotonic() - began < seconds:
            moving = status.transfers(connection)
            _show(progress, bars, moving)
            counts = status.counts(connection)
            open_ones = sum(
                counts[name]
                for name in ("discovered", "downloading", "downloaded", "uploading_to_minio")
            )
            if until_done and not moving and not open_ones:
                break
            time.sleep(LOOK_SECONDS)
    if not console.is_terminal:
        click.echo(f"{len(bars)} transfers were seen, {counts['completed']} files are completed")


def _show(progress: Progress, bars: dict[int, TaskID], moving: list[dict[str, Any]]) -> None:
    now = {row["id"] for row in moving}
    for row in moving:
        if row["id"] not in bars:
            name = f"{row['server']}/{row['filename']}"
            bars[row["id"]] = progress.add_task(name[-60:], total=row["filesize"])
        progress.update(bars[row["id"]], completed=row["bytes_done"])
    for file_id, bar in bars.items():
        if file_id not in now:
            progress.update(bar, visible=False)


def _change(
    application: Application, verb: str, ids: list[int], is_dry_run: bool, as_json: bool
) -> None:
    with application.connection() as connection:
        done = getattr(operations, verb)(connection, ids) if ids else []
        if is_dry_run:
            connection.rollback()
    if as_json:
        print_json({"ids": done, "is_dry_run": is_dry_run})
        return
    would = "would be " if is_dry_run else ""
    words = {"retry": "tried again", "skip": "skipped", "reimport": "fetched again"}
    click.echo(f"{len(done)} of {len(ids)} files {would}{words[verb]}")
