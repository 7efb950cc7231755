"""`postroad db`: the schemas of all components in the database."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import click

from postroad.cli.components import SCHEMAS
from postroad.cli.context import Application, command
from postroad.cli.output import print_json, print_records, print_result
from postroad.postgres import migrator
from postroad.postgres.migrator import Outcome


@click.group()
def db() -> None:
    """Install and upgrade the schemas.

    The database is given by --database-url or POSTROAD_DATABASE_URL; otherwise it is the embedded
    one, which is started for as long as the command runs.
    """


@command(db)
def install(application: Application, is_dry_run: bool, as_json: bool) -> None:
    """Install every schema, and upgrade existing ones.

    Example: postroad --database-url postgresql:///orders db install
    """
    _migrate(application, migrator.install, is_dry_run=is_dry_run, as_json=as_json)


@command(db)
def upgrade(application: Application, is_dry_run: bool, as_json: bool) -> None:
    """Upgrade the installed schemas to this version.

    Example: postroad db upgrade --dry-run
    """
    _migrate(application, migrator.upgrade, is_dry_run=is_dry_run, as_json=as_json)


@command(db)
def status(application: Application, as_json: bool) -> None:
    """Compare the installed schemas with this version.

    Example: postroad db status --json
    """
    with application.connection() as connection:
        found = [migrator.status(connection, schema) for schema in SCHEMAS]
    if as_json:
        print_json([{**dataclasses.asdict(one), "is_current": one.is_current} for one in found])
        return
    rows = [
        {
            "schema": one.schema,
            "installed by": one.version,
            "server": f"{one.server_version // 10000}.{one.server_version % 10000}",
            "migrations": len(one.applied),
            "pending": one.pending,
            "unknown": one.unknown,
            "changed": len(one.changed),
            "state": one.state,
        }
        for one in found
    ]
    print_records(rows, as_json=False)


@db.command()
@click.argument("schema", required=False, type=click.Choice([one.name for one in SCHEMAS]))
def sql(schema: str | None) -> None:
    """Print the whole installation as one script for a database administrator.

    Example: postroad db sql | psql -1 -f - orders
    """
    for one in SCHEMAS:
        if schema in (None, one.name):
            click.echo(migrator.script(one), nl=False)


@command(db)
def stop(application: Application) -> None:
    """Stop the embedded server if it was left running and is not used.

    Example: postroad db stop
    """
    click.echo("stopped" if application.embedded_server().halt() else "it was not running")


def _migrate(
    application: Application, run: Callable[..., Outcome], *, is_dry_run: bool, as_json: bool
) -> None:
    with application.connection() as connection:
        outcomes = [run(connection, schema, is_dry_run=is_dry_run) for schema in SCHEMAS]
    documents = [{**dataclasses.asdict(done), "is_dry_run": is_dry_run} for done in outcomes]
    sentences = [_sentence(done, is_dry_run=is_dry_run) for done in outcomes]
    print_result(documents, "\n".join(sentences), as_json=as_json)


def _sentence(done: Outcome, *, is_dry_run: bool) -> str:
    if done.is_unchanged:
        return f"{done.schema}: current, nothing to do"
    did = "would be " if is_dry_run else ""
    if done.is_fresh:
        return f"{done.schema}: {did}installed ({len(done.replaced)} files besides its tables)"
    steps = ", ".join(done.migrations) or "no migration"
    steps += "; given to a role without superuser" if done.is_owner_changed else ""
    return f"{done.schema}: {did}upgraded ({steps}; {len(done.replaced)} files replaced)"
