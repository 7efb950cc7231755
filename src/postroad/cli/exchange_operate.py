"""`postroad exchange processes, messages, requeue, resolve, release, replay, check, routes`."""

from __future__ import annotations

import getpass
import os
import time
from pathlib import Path
from typing import Any

import click
from psycopg import Connection
from rich.progress import Progress

from postroad.cli.context import Application, pass_application
from postroad.cli.exchange_context import exchange_connection, exchange_root
from postroad.cli.output import dry_run_option, json_option, print_json, print_table
from postroad.exchange import operations, status
from postroad.exchange.check import check as compare
from postroad.exchange.errors import ProcessNotFound
from postroad.exchange.files import Storage

__all__ = ["check", "messages", "processes", "release", "replay", "requeue", "resolve", "routes"]

FOLLOW_SECONDS = 10.0


@click.command()
@click.argument("process_id", metavar="[ID]", required=False)
@click.option("--database", help="Only of this database.")
@click.option("--state", help="Only in this state; `open`: those that are not ended.")
@click.option("--limit", default=50, show_default=True, help="The latest so many.")
@json_option
@pass_application
def processes(
    application: Application,
    process_id: str | None,
    database: str | None,
    state: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List processes, the latest first; or show one with its files and history.

    Example: postroad exchange processes --state open
    """
    with exchange_connection(application) as connection:
        if process_id is not None:
            found = status.process(connection, process_id)
            if found is None:
                raise ProcessNotFound(
                    f"there is no process {process_id}", hint="look at: postroad exchange processes"
                )
            _show_process(found, as_json)
            return
        rows = status.processes(connection, database=database, state=state, limit=limit)
    if as_json:
        print_json(rows)
        return
    columns = ("id", "database", "recipient", "state", "files", "replies", "started_at", "error")
    print_table(columns, [tuple(row[c] for c in columns) for row in rows])


def _show_process(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_table(
        ("process", "database", "recipient", "state", "outcome", "error"),
        [tuple(found[c] for c in ("id", "database", "recipient", "state", "outcome", "error"))],
    )
    print_table(
        ("file", "result", "folder", "error"),
        [(f["name"], f["result"], f["folder"], f["error"]) for f in found["files"]],
    )
    if found["replies"]:
        print_table(
            ("reply", "recipient", "state", "folder", "error"),
            [
                (r["name"], r["recipient"], r["state"], r["folder"], r["error"])
                for r in found["replies"]
            ],
        )
    print_table(
        ("state", "at", "by", "note"),
        [(h["state"], h["at"], h["actor"], h["note"]) for h in found["history"]],
    )


@click.command()
@click.option("--database", help="Only of this database.")
@click.option("--state", help="queued, leased, deferred, parked, unknown, done, waiting …")
@click.option("--sender", help="Only of this sender.")
@click.option("--limit", default=50, show_default=True, help="The latest so many.")
@json_option
@pass_application
def messages(
    application: Application,
    database: str | None,
    state: str | None,
    sender: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List messages and replies, the latest first.

    Example: postroad exchange messages --database sales --state parked
    """
    with exchange_connection(application) as connection:
        rows = status.messages(
            connection, database=database, state=state, sender=sender, limit=limit
        )
    if as_json:
        print_json(rows)
        return
    columns = ("database", "id", "sender", "recipient", "sequence", "state", "folder", "error")
    print_table(columns, [tuple(row[c] for c in columns) for row in rows])


@click.command()
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--sender", help="Whose message, where several have used the id.")
@click.option("--recipient", help="Whose reply, where several have one of this id.")
@click.option("--database", help="Of which database.")
@click.option("--by-file", is_flag=True, help="All that were parked because of their files.")
@dry_run_option
@json_option
@pass_application
def requeue(
    application: Application,
    message_id: str | None,
    sender: str | None,
    database: str | None,
    recipient: str | None,
    by_file: bool,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Hand a parked or deferred message, or a parked reply, out again.

    Example: postroad exchange requeue order-17 --sender tablet-3
    """
    if by_file is (message_id is not None):
        raise click.UsageError("give the id of a message, or --by-file")
    with exchange_connection(application) as connection:
        if message_id is None:
            count = operations.requeue_by_file(connection, database=database)
            _end(connection, is_dry_run)
            _say(f"{count} messages", "handed out again", is_dry_run, as_json, count=count)
            return
        operations.requeue(
            connection, message_id, sender=sender, database=database, recipient=recipient
        )
        _end(connection, is_dry_run)
    _say(f"message {message_id}", "handed out again", is_dry_run, as_json, id=message_id)


@click.command()
@click.argument("process_id", metavar="PROCESS")
@click.argument("outcome", type=click.Choice(["COMMITTED", "ABORTED"], case_sensitive=False))
@dry_run_option
@json_option
@pass_application
def resolve(
    application: Application, process_id: str, outcome: str, is_dry_run: bool, as_json: bool
) -> None:
    """Settle a process in doubt by hand, after a look into the ERP's database.

    Example: postroad exchange resolve 7b0c7c1e-… COMMITTED
    """
    with exchange_connection(application) as connection:
        operations.resolve(connection, process_id, outcome.upper(), by=_user())
        _end(connection, is_dry_run)
    _say(f"process {process_id}", f"settled {outcome}", is_dry_run, as_json, id=process_id)


@click.command()
@click.argument("process_id", metavar="PROCESS")
@click.option("--outcome", type=click.Choice(["COMMITTED", "ABORTED"]), help="What the ERP did.")
@dry_run_option
@json_option
@pass_application
def release(
    application: Application,
    process_id: str,
    outcome: str | None,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """End a process by hand; one that is ready to commit needs its outcome.

    Example: postroad exchange release 7b0c7c1e-…
    """
    with exchange_connection(application) as connection:
        operations.release(connection, process_id, outcome, by=_user())
        _end(connection, is_dry_run)
    _say(f"process {process_id}", "released", is_dry_run, as_json, id=process_id)


@click.command()
@click.argument("database_id", metavar="DB")
@click.option("--from", "from_seq", type=int, help="Replay what was committed after this marker.")
@click.option("--skip", "is_skipped", is_flag=True, help="Accept the loss and go on.")
@dry_run_option
@json_option
@pass_application
def replay(
    application: Application,
    database_id: str,
    from_seq: int | None,
    is_skipped: bool,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Hand out again, from Log, what a database lost when it was restored from a backup.

    Example: postroad exchange replay sales --dry-run
    """
    with exchange_connection(application) as connection:
        if from_seq is None:
            # What was reported a moment ago may be corrected yet; then there is nothing to replay.
            while seconds := operations.restored_in(connection, database_id):
                connection.rollback()
                time.sleep(seconds)
        count = operations.replay(connection, database_id, from_seq=from_seq, is_skipped=is_skipped)
        _end(connection, is_dry_run)
    if as_json:
        print_json({"database": database_id, "replayed": count, "is_dry_run": is_dry_run})
    else:
        click.echo(f"{count} messages {'would be' if is_dry_run else 'are'} handed out again")


@click.command()
@click.option("--fix", "is_fixing", is_flag=True, help="Repair what is found.")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="The root folder. Default: the one that the server used last.",
)
@json_option
@pass_application
def check(application: Application, is_fixing: bool, root: Path | None, as_json: bool) -> None:
    """Compare rows and folders: missing, changed, misplaced and unlisted files.

    Exits with 1 if a file is missing or changed (`--fix` parks its message), or if something else
    is wrong and was not repaired. Refuses a folder that is not the journal's root.

    Example: postroad exchange check --fix
    """
    with exchange_connection(application) as connection, Progress(transient=True) as bar:
        served = status.server(connection)["root_path"]
        storage = Storage(root or (Path(served) if served else exchange_root(application)))
        task = bar.add_task("comparing rows and folders", total=None)
        findings = compare(
            connection,
            storage,
            is_fixing=is_fixing,
            progress=lambda count: bar.advance(task, count),
        )
    rows = [(f.kind, f.database, f.folder, f.name, f.detail, f.is_fixed) for f in findings]
    columns = ("kind", "database", "folder", "name", "detail", "is_fixed")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows)
    else:
        click.echo("rows and folders agree")
    if any(not one.is_fixed or one.kind in ("missing", "changed") for one in findings):
        raise click.exceptions.Exit(1)


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def routes(ctx: click.Context, as_json: bool) -> None:
    """Ways between the bus and the mailboxes. Alone: list them.

    Example: postroad exchange routes
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_routes, as_json=as_json)


@routes.command("list")
@json_option
@pass_application
def list_routes(application: Application, as_json: bool) -> None:
    """List the ways.

    Example: postroad exchange routes list
    """
    with exchange_connection(application) as connection:
        rows = status.routes(connection)
    if as_json:
        print_json(rows)
        return
    columns = ("id", "direction", "queue", "database_id", "recipient")
    print_table(columns, [tuple(row[c] for c in columns) for row in rows])


@routes.command("add")
@click.argument("route_id", metavar="ID")
@click.argument("direction", type=click.Choice(["in", "out"]))
@click.argument("queue")
@click.option("--database", help="in: the mailbox that gets what is posted to the queue.")
@click.option("--recipient", help="out: whose replies are posted to the queue.")
@json_option
@pass_application
def add_route(
    application: Application,
    route_id: str,
    direction: str,
    queue: str,
    database: str | None,
    recipient: str | None,
    as_json: bool,
) -> None:
    """Lay a way: from a bus queue into a mailbox, or from replies to a bus queue.

    Example: postroad exchange routes add orders in sample_orders --database sales
    """
    if direction == "in" and database is None:
        raise click.UsageError("a route into a mailbox needs --database")
    if direction == "out" and recipient is None:
        raise click.UsageError("a route out of the mailboxes needs --recipient")
    with exchange_connection(application) as connection:
        operations.add_route(
            connection, route_id, direction, queue, database=database, recipient=recipient
        )
    _say(f"route {route_id}", "laid", False, as_json, id=route_id)


@routes.command("remove")
@click.argument("route_id", metavar="ID")
@json_option
@pass_application
def remove_route(application: Application, route_id: str, as_json: bool) -> None:
    """Take a way back; what is under way arrives.

    Example: postroad exchange routes remove orders
    """
    with exchange_connection(application) as connection:
        is_removed = operations.remove_route(connection, route_id)
    _say(f"route {route_id}", "removed" if is_removed else "not there", False, as_json, id=route_id)


def _user() -> str:
    """Return who runs the command, for the history of a process."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (KeyError, OSError):
        # A user id without a name, in a container.
        return f"user {os.getuid()} (command line)"


def _end(connection: Connection, is_dry_run: bool) -> None:
    """Commit, and wait until the serving exchange has moved the files; or take all back."""
    if is_dry_run:
        connection.rollback()
        return
    connection.commit()
    deadline = time.monotonic() + FOLLOW_SECONDS
    while time.monotonic() < deadline:
        facts = status.server(connection)
        connection.rollback()
        if not facts["pending"] or not facts["is_serving"]:
            return
        time.sleep(0.1)


def _say(what: str, verb: str, is_dry_run: bool, as_json: bool, **facts: object) -> None:
    if as_json:
        print_json({**facts, "status": "OK", "is_dry_run": is_dry_run})
    else:
        click.echo(f"{what} {'would be' if is_dry_run else 'is'} {verb}")
