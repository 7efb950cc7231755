"""`postroad intake servers` and `key`: the servers, and the keys that encrypt their credentials."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import Any

import click

from postroad.cli.context import Application, command
from postroad.cli.derived import MAX_LIMIT, resource_group
from postroad.cli.output import Command, duration_option, print_json, print_records, print_result
from postroad.cli.parts_intake import intake_context
from postroad.intake import Credentials, operations, probe
from postroad.intake.resources import ACTIONS, SERVERS
from postroad.vault import add_key, create_key_file

servers = resource_group(SERVERS, ACTIONS, Application.run, limit=MAX_LIMIT)


def _facts_of_a_server(command: Command) -> Command:
    options: list[Command] = [
        click.option("--name", help="Name of the server; default: its host."),
        click.option("--port", type=click.IntRange(1, 65535)),
        click.option("--directory", help="The folder to watch; default: the login's home folder."),
        click.option("--host-key", help="The server's public key; default: pinned on first use."),
        click.option("--trust-first-key/--no-trust-first-key", "trusts_first_key", default=None,
                     help="Send a password even before the host key is pinned."),
        duration_option("--interval", "scan_interval", help="The scan interval."),
        click.option("--include", multiple=True, help="Pattern of files to import; repeatable."),
        click.option("--exclude", multiple=True, help="Pattern of files to exclude; repeatable."),
        click.option("--ignore", multiple=True,
                     help="Pattern of incomplete files, case-insensitive; repeatable."),
        click.option("--case-sensitive/--ignore-case", "is_case_sensitive", default=None),
        click.option("--depth", "max_depth", type=click.IntRange(0, 100),
                     help="Levels of subfolders."),
        click.option("--follow-links/--no-follow-links", "follows_links", default=None),
        click.option("--stable-checks", "--looks", "looks", type=click.IntRange(1, 10), help=(
                     "Identical listings required before a file is imported."
                     " --looks is deprecated.")),
        duration_option("--minimum-age",
                        help="How long a file must be unchanged before it is imported."),
        click.option("--done-suffix", help="Suffix of the done-file, such as .done."),
        click.option("--after-import", type=click.Choice(["leave", "delete", "move"])),
        click.option("--move-to",
                     help="Where --after-import move puts files; relative to the watched folder."),
        click.option("--transfer-mode", "--way", "way",
                     type=click.Choice(["stream", "temporary_file"]),
                     help="Stream into the store, or through a temporary file."
                          " --way is deprecated."),
        click.option("--connections", "max_connections", type=click.IntRange(1, 64)),
        click.option("--key-file", type=click.Path(path_type=Path, exists=True, dir_okay=False)),
        *(click.option(f"--{name}-file", type=click.Path(path_type=Path, exists=True))
          for name in ("certificate", "passphrase", "password")),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@command(servers)
@click.option("--host", required=True)
@click.option("--user", "username", required=True)
@_facts_of_a_server
def add(application: Application, as_json: bool, **given: Any) -> None:
    """Add a server. Without a key or password file, the command asks for the password.

    Example: postroad intake servers add --host sftp.example.com --user acme --key-file id_ed25519
    """
    credentials = _credentials(given) or Credentials(password=getpass.getpass("password: "))
    vault, values = application.vault(), _values(given)
    row = application.run(
        lambda connection: operations.create_server(connection, vault, credentials, values)
    )
    name = row["name"]
    sentence = f"server {name} was added; test it: postroad intake servers test {name}"
    print_result(row, sentence, as_json=as_json)


@command(servers)
@click.argument("server")
@click.option("--host")
@click.option("--user", "username")
@_facts_of_a_server
def change(application: Application, server: str, as_json: bool, **given: Any) -> None:
    """Change settings of a server; options that are not passed keep their values.

    Example: postroad intake servers change acme --interval 5m --after-import delete
    """
    vault, credentials, values = application.vault(), _credentials(given), _values(given)
    row = application.run(
        lambda connection: operations.change_server(connection, vault, server, values, credentials)
    )
    print_result(row, f"server {row['name']} was changed", as_json=as_json)


@command(servers)
@click.argument("server")
def test(application: Application, server: str, as_json: bool) -> None:
    """Log in to a server and list its folder; nothing is imported.

    Example: postroad intake servers test acme
    """
    found = _with_engine(application, server, probe.try_server)
    if as_json:
        print_json(found)
    elif found["works"]:
        click.secho("the login works, and the folder can be read", fg="green")
        click.echo(f"host key: {found['host_key']}")
    else:
        click.secho(found["problem"], fg="red", err=True)
        click.echo(f"hint: {found['hint']}", err=True)
    if not found["works"]:
        raise SystemExit(1)


@command(servers)
@click.argument("server")
@click.argument("path", required=False)
def browse(application: Application, server: str, path: str | None, as_json: bool) -> None:
    """List a folder of a server, by default the watched one.

    Example: postroad intake servers browse acme outgoing
    """
    found = _with_engine(application, server, probe.browse, path)
    print_records(found, as_json=as_json, empty="the folder is empty")


def _with_engine(application: Application, server: str, look: Command, *given: object) -> Any:
    with intake_context(application) as context:
        found = application.run(lambda connection: SERVERS.one(connection, server), dsn=context.dsn)

        async def run() -> Any:
            engine = context.open_engine()
            try:
                return await look(engine, found["id"], *given)
            finally:
                await engine.close()

        return asyncio.run(run())


def _credentials(given: dict[str, Any]) -> Credentials | None:
    def read(name: str) -> str | None:
        path: Path | None = given.pop(f"{name}_file")
        return path.read_text(encoding="utf-8") if path else None

    password, passphrase = read("password"), read("passphrase")
    private_key, certificate = read("key"), read("certificate")
    if not password and not private_key:
        return None
    return Credentials(
        password=password.rstrip("\n") if password else None,
        private_key=private_key,
        passphrase=passphrase.rstrip("\n") if passphrase else None,
        certificate=certificate,
    )


def _values(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and value != ()
    }


@click.group()
def key() -> None:
    """Manage the keys that encrypt the credentials of servers.

    Example: postroad intake key rotate
    """


@command(key)
def create(application: Application) -> None:
    """Create the key file if there is none, and print its path.

    Example: postroad intake key create
    """
    click.echo(create_key_file(_key_file(application)))


@command(key)
def rotate(application: Application, is_dry_run: bool, as_json: bool) -> None:
    """Create a new key and encrypt all credentials with it; older keys can still decrypt.

    If the keys are in the environment, put the new key first there.

    Example: postroad intake key rotate --dry-run
    """
    if is_dry_run:
        count, outcome = len(application.run(SERVERS.all)), "would be encrypted again"
    else:
        if application.settings.vault.keys is None:
            add_key(create_key_file(_key_file(application)))
        vault, outcome = application.vault(), "are encrypted with the newest key"
        count = application.run(lambda connection: operations.rotate_credentials(connection, vault))
    sentence = f"the credentials of {count} servers {outcome}"
    print_result({"servers": count}, sentence, as_json=as_json)


def _key_file(application: Application) -> Path:
    return application.settings.vault.key_file or application.data_folder / "vault.key"
