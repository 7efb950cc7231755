"""Shared by the commands of the intake: the context, the token, the installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from postroad.cli.components import SCHEMAS, install_all
from postroad.cli.context import Application
from postroad.intake.context import IntakeContext
from postroad.postgres import connect, require


def make_context(application: Application, dsn: str) -> IntakeContext:
    """Make what all of the intake works with."""
    settings, folder = application.settings, application.data_folder
    is_pooled = settings.database.is_pooled
    return IntakeContext(dsn, settings.intake, application.vault(), folder, is_pooled)


@contextmanager
def intake_context(application: Application) -> Iterator[IntakeContext]:
    """Yield the context for the database in use; an embedded one is installed automatically."""
    with application.database() as dsn:
        with connect(dsn) as connection:
            if application.named_database is None:
                install_all(connection)
            else:
                for schema in SCHEMAS:
                    require(connection, schema)
        yield make_context(application, dsn)


def api_token(application: Application) -> str:
    """Return the token of the web API: that of the settings, or a generated one."""
    return application.token("intake", application.settings.intake.token)
