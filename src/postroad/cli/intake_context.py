"""What the commands of the intake share: the context, the token, the installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from postroad.cli.context import Application
from postroad.cli.rooms import SCHEMAS
from postroad.intake.context import IntakeContext
from postroad.postgres import connect, install, require
from postroad.web import new_token

__all__ = ["api_token", "intake_context"]

TOKEN_FILE = "intake.token"  # noqa: S105 - a file's name


@contextmanager
def intake_context(application: Application) -> Iterator[IntakeContext]:
    """Give the context over the database in use; the embedded one is installed by itself."""
    with application.database() as dsn:
        with connect(dsn) as connection:
            for schema in SCHEMAS:
                if application.named_database is None:
                    install(connection, schema)
                else:
                    require(connection, schema)
        yield IntakeContext(
            dsn, application.settings.intake, application.vault(), application.data_folder
        )


def api_token(application: Application) -> str:
    """Return the token of the web API; one is made in the data folder when none is set."""
    token = application.settings.intake.token
    if token is not None:
        return token.get_secret_value()
    path = application.data_folder / TOKEN_FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(new_token("intake") + "\n", encoding="ascii")
        click.echo(f"made a token for the web API: {path}", err=True)
    return path.read_text(encoding="ascii").strip()
