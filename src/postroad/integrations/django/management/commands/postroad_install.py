"""The command `postroad_install`: the schema of the bus in a database of Django."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections

from postroad.bus.schema import BUS
from postroad.errors import PostroadError
from postroad.integrations.django import connection_of
from postroad.postgres import migrator


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Installs the schema or upgrades it, in one transaction on Django's connection."""

    help = "Install the schema of the bus, or upgrade it to this version."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="alias in DATABASES")
        parser.add_argument("--dry-run", action="store_true", help="change nothing")

    def handle(self, *_: Any, database: str, dry_run: bool, **__: Any) -> None:
        """Run the command."""
        if connections[database].in_atomic_block:
            raise CommandError("the installation is a transaction of its own, not inside `atomic`")
        try:
            done = migrator.install(connection_of(database), BUS, is_dry_run=dry_run)
        except PostroadError as error:
            raise CommandError(f"{error}\n{error.hint or ''}".strip()) from error
        if done.is_unchanged:
            self.stdout.write("mbus: current, nothing to do")
        else:
            would = "would be " if dry_run else ""
            self.stdout.write(f"mbus: {would}{'installed' if done.is_fresh else 'upgraded'}")
