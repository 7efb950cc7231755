"""`postroad exchange clients` and `databases`: who may call, and what there is."""

from __future__ import annotations

from dataclasses import asdict

import click

from postroad.cli.context import Application, pass_application
from postroad.cli.exchange_context import exchange_connection
from postroad.cli.output import dry_run_option, json_option, print_json, print_table
from postroad.exchange import operations, status

__all__ = ["clients", "databases"]


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
        ("client", "admin", "databases", "recipients", "since"),
        [
            (c["id"], c["is_admin"], c["databases"] or "all", c["recipients"], c["created_at"])
            for c in found
        ],
    )


@clients.command("add")
@click.argument("client_id", metavar="ID")
@click.option("--admin", "is_admin", is_flag=True, help="May use the administrators' calls.")
@click.option("--database", "names", multiple=True, help="Only this database; may be repeated.")
@click.option("--recipient", "recipients", multiple=True, help="May fetch for this recipient, too.")
@json_option
@pass_application
def add_client(
    application: Application,
    client_id: str,
    is_admin: bool,
    names: tuple[str, ...],
    recipients: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a client known and print its token, this once.

    Example: postroad exchange clients add erp-1 --database sales --json
    """
    with exchange_connection(application) as connection:
        made = operations.add_client(
            connection, client_id, is_admin=is_admin, databases=names, recipients=recipients
        )
    if as_json:
        print_json(asdict(made))
        return
    click.echo(f"client {made.id} may call with this token, which is not shown again:\n")
    click.echo(f"  {made.token}\n")


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
