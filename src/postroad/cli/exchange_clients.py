"""`postroad exchange clients` and `databases`: who may call, and what there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from postroad.cli.context import Application, pass_application
from postroad.cli.exchange_context import exchange_connection
from postroad.cli.output import dry_run_option, json_option, print_json, print_table
from postroad.exchange import operations, status

__all__ = ["clients", "databases"]

Command = TypeVar("Command", bound=Callable[..., Any])


def _rights(*, default: bool | None) -> Callable[[Command], Command]:
    """Add the options of rights; what is not given is None, except `--admin` of a new client."""

    def decorate(command: Command) -> Command:
        for option in (
            click.option("--recipient", "recipients", multiple=True, help="May take for it, too."),
            click.option("--take/--no-take", "may_take", default=None, help="May take messages."),
            click.option("--send/--no-send", "may_send", default=None, help="May send messages."),
            click.option("--all-databases", is_flag=True, help="Every database, now and later."),
            click.option("--database", "databases", multiple=True, help="A database it may use."),
            click.option("--admin/--no-admin", "is_admin", default=default, help="Administrates."),
        ):
            command = option(command)
        return command

    return decorate


def _given(rights: dict[str, Any]) -> dict[str, Any]:
    """Return the rights that were given as options."""
    has_all = rights.pop("all_databases")
    if has_all and rights["databases"]:
        raise click.UsageError("give --database or --all-databases, not both")
    given = {name: value for name, value in rights.items() if value not in (None, ())}
    return {**given, "databases": None} if has_all else given


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def clients(ctx: click.Context, as_json: bool) -> None:
    """Clients: ERP instances, mobile clients, administrators. Alone: list them.

    Example: postroad exchange clients --json
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_clients, as_json=as_json)


@clients.command("list")
@json_option
@pass_application
def list_clients(application: Application, as_json: bool) -> None:
    """List the clients, without their secrets.

    Example: postroad exchange clients list
    """
    with exchange_connection(application) as connection:
        found = status.clients(connection)
    if as_json:
        print_json(found)
        return
    print_table(
        ("client", "admin", "databases", "sends", "takes", "recipients", "since"),
        [
            (
                c["id"],
                c["is_admin"],
                "all" if c["databases"] is None else c["databases"],
                c["may_send"],
                c["may_take"],
                c["recipients"],
                c["created_at"],
            )
            for c in found
        ],
    )


@clients.command("add")
@click.argument("client_id", metavar="ID")
@_rights(default=False)
@json_option
@pass_application
def add_client(application: Application, /, client_id: str, as_json: bool, **rights: Any) -> None:
    """Add a client and print its token, this once.

    Without --database and --all-databases it only receives replies.

    Example: postroad exchange clients add erp-1 --database sales --json
    """
    with exchange_connection(application) as connection:
        made = operations.add_client(connection, client_id, **_given(rights))
    if as_json:
        print_json(asdict(made))
        return
    click.echo(f"client {made.id} may call with this token, which is not shown again:\n")
    click.echo(f"  {made.token}\n")


@clients.command("change")
@click.argument("client_id", metavar="ID")
@_rights(default=None)
@json_option
@pass_application
def change_client(
    application: Application, /, client_id: str, as_json: bool, **rights: Any
) -> None:
    """Change the rights that are named; the token stays. Applied within two seconds.

    Example: postroad exchange clients change erp-1 --database sales --database stock --no-send
    """
    given = _given(rights)
    if not given:
        raise click.UsageError("name a right to change")
    with exchange_connection(application) as connection:
        operations.change_client(connection, client_id, **given)
    if as_json:
        print_json({"id": client_id, "status": "OK"})
    else:
        click.echo(f"the rights of client {client_id} are changed")


@clients.command("renew")
@click.argument("client_id", metavar="ID")
@json_option
@pass_application
def renew_client(application: Application, client_id: str, as_json: bool) -> None:
    """Give a client a new token; the old one ends within two seconds.

    Example: postroad exchange clients renew erp-1
    """
    with exchange_connection(application) as connection:
        token = operations.renew_client(connection, client_id)
    if as_json:
        print_json({"id": client_id, "token": token})
    else:
        click.echo(f"the new token of {client_id}, which is not shown again:\n\n  {token}\n")


@clients.command("remove")
@click.argument("client_id", metavar="ID")
@dry_run_option
@json_option
@pass_application
def remove_client(
    application: Application, client_id: str, is_dry_run: bool, as_json: bool
) -> None:
    """Forget a client; its messages stay.

    Example: postroad exchange clients remove erp-1
    """
    with exchange_connection(application) as connection:
        operations.remove_client(connection, client_id)
        if is_dry_run:
            connection.rollback()
    if as_json:
        print_json({"id": client_id, "is_dry_run": is_dry_run})
    else:
        click.echo(f"client {client_id} {'would be' if is_dry_run else 'is'} forgotten")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def databases(ctx: click.Context, as_json: bool) -> None:
    """Databases and what lies in their folders. Alone: list them.

    Example: postroad exchange databases --json
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_databases, as_json=as_json)


@databases.command("list")
@json_option
@pass_application
def list_databases(application: Application, as_json: bool) -> None:
    """List the databases with what waits in them.

    Example: postroad exchange databases list
    """
    with exchange_connection(application) as connection:
        found = status.databases(connection)
    if as_json:
        print_json(found)
        return
    columns = ("id", "resolution", "queued", "leased", "deferred", "parked", "in_doubt", "replies")
    print_table(
        ("database", *columns[1:], "process"),
        [(*(d[c] for c in columns), d["process_state"]) for d in found],
    )


@databases.command("add")
@click.argument("database_id", metavar="DB")
@click.option(
    "--resolution",
    type=click.Choice(["marker", "manual"]),
    help="Who settles a process in doubt: the ERP's marker, or a person. Default marker.",
)
@click.option(
    "--policy",
    type=click.Choice(["go_on", "wait"]),
    help="What follows a parked message of the same sender goes on or waits.",
)
@json_option
@pass_application
def add_database(
    application: Application,
    database_id: str,
    resolution: str | None,
    policy: str | None,
    as_json: bool,
) -> None:
    """Make a database known, or change how it is handled.

    Example: postroad exchange databases add sales --resolution marker
    """
    with exchange_connection(application) as connection:
        made = operations.add_database(
            connection, database_id, resolution=resolution, policy=policy
        )
    if as_json:
        print_json(made)
    else:
        click.echo(f"database {made['id']} is known; in doubt is settled by: {made['resolution']}")
