"""Shared by all commands: the settings, the database, and how results are shown."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from psycopg import AsyncConnection, Connection

from postroad import logs
from postroad.cli.output import DRY_RUN, JSON
from postroad.durable import create_file
from postroad.postgres.connections import connect, connect_async
from postroad.postgres.embedded import EmbeddedServer
from postroad.postgres.server_user import data_folder_default, make_data_folder
from postroad.service import Service
from postroad.settings import Settings
from postroad.settings_sources import LoadedSettings, load
from postroad.web.tokens import new_token

if TYPE_CHECKING:
    from pydantic import SecretStr

    from postroad.vault import Vault

T = TypeVar("T")


@dataclass
class Application:
    """The object of every command, which `@pass_application` passes as the first argument."""

    flags: dict[str, Any] = field(default_factory=dict)
    config_file: Path | None = None

    @cached_property
    def loaded(self) -> LoadedSettings:
        """The settings with their sources, read on first access."""
        return load(self.flags, self.config_file)

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self.loaded.settings

    @property
    def named_database(self) -> str | None:
        """The DSN that was configured, if any."""
        url = self.settings.database_url
        return url.get_secret_value() if url is not None else None

    def embedded_server(self) -> EmbeddedServer:
        """Return the embedded server as configured, not started."""
        return EmbeddedServer.of(self.settings)

    @property
    def data_folder(self) -> Path:
        """The data folder of this installation."""
        return (self.settings.data_folder or data_folder_default()).absolute()

    def token(self, service: str, given: SecretStr | None) -> str:
        """Return the bearer token of a web API: as configured, or generated in the data folder."""
        if given is not None:
            return given.get_secret_value()
        path = self.data_folder / f"{service}.token"
        if not path.exists():
            make_data_folder(path.parent)
            if create_file(path, new_token(service) + "\n"):
                click.echo(f"generated a token for the web API: {path}", err=True)
        return path.read_text(encoding="ascii").strip()

    def vault(self) -> Vault:
        """Return the vault with the configured keys; the default key file is created."""
        # Imported late: cryptography is an extra.
        from postroad.vault import open_vault

        return open_vault(self.settings.vault, lambda: make_data_folder(self.data_folder))

    def child_flags(self) -> list[str]:
        """Return the global options that give a child process the same settings."""
        given = {
            "--data-folder": self.flags.get("data_folder"),
            "--config-file": self.config_file,
            "--log-level": self.flags.get("logs.level") or "warning",
        }
        return [str(part) for pair in given.items() if pair[1] is not None for part in pair]

    def set_up_logs(self, stream: TextIO | None = None) -> None:
        """Log warnings only, unless a level is configured."""
        is_given = "logs.level" in self.loaded.sources
        level = self.settings.logs.level if is_given else "warning"
        logs.set_up(level=level, shape=self.settings.logs.shape, stream=stream)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the DSN of the database; the embedded server runs in the meantime if needed."""
        if self.named_database is not None:
            yield self.named_database
        else:
            with self.embedded_server() as server:
                yield server.dsn()

    @contextmanager
    def connection(self, *, autocommit: bool = False) -> Iterator[Connection]:
        """Yield a connection to the database; commits at the end unless an error is raised."""
        with self.database() as dsn, connect(dsn, **self._options(autocommit)) as connection:
            yield connection

    def _options(self, autocommit: bool) -> dict[str, Any]:
        database = self.settings.database
        given = {"connect_timeout": database.connect_timeout, "is_pooled": database.is_pooled}
        return {**given, "autocommit": autocommit}

    def run(
        self,
        do: Callable[[AsyncConnection[Any]], Awaitable[T]],
        /,
        *,
        is_dry_run: bool = False,
        dsn: str | None = None,
        autocommit: bool = False,
    ) -> T:
        """Run an operation on its own connection; commit, or roll back in a dry run."""

        async def run(dsn: str) -> T:
            async with await connect_async(dsn, **self._options(autocommit)) as connection:
                result = await do(connection)
                if is_dry_run:
                    await connection.rollback()
                return result

        with self.database() if dsn is None else nullcontext(dsn) as found:
            return asyncio.run(run(found))


pass_application = click.make_pass_decorator(Application, ensure=True)


def command(
    group: click.Group | None = None, name: str | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Turn a function into a command and add it to a group.

    The function gets the application first; `--dry-run` and `--json` are added if it has the
    parameters `is_dry_run` and `as_json`.
    """

    def make(function: Callable[..., None]) -> click.Command:
        made = click.command(name)(pass_application(function))
        named = inspect.signature(function).parameters
        made.params += [option for option in (DRY_RUN, JSON) if option.name in named]
        if group is not None:
            group.add_command(made)
        return made

    return make


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set."""
    event = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event


async def run_service(
    service: Service, announce: Callable[[], object], seconds: float | None = None
) -> None:
    """Run a service until SIGINT or SIGTERM, or for the given time; announce when it is ready."""
    stopping = stop_event()
    async with service:
        announce()
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, stopping.set)
        await service.join_or(stopping)
