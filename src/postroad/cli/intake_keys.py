"""`postroad intake key`: the keys that encrypt credentials."""

from __future__ import annotations

import click

from postroad.cli.context import Application, command
from postroad.cli.output import print_result
from postroad.intake import operations
from postroad.intake.resources import SERVERS
from postroad.vault import add_key, create_key_file


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
    path = application.settings.vault.key_file or application.data_folder / "vault.key"
    click.echo(create_key_file(path))


@command(key)
def rotate(application: Application, is_dry_run: bool, as_json: bool) -> None:
    """Create a new key and encrypt all credentials with it; older keys can still decrypt.

    If the keys are in the environment, put the new key first there.

    Example: postroad intake key rotate --dry-run
    """
    settings = application.settings.vault
    path = settings.key_file or application.data_folder / "vault.key"
    if is_dry_run:
        count, outcome = len(application.run(SERVERS.all)), "would be encrypted again"
    else:
        if settings.keys is None:
            create_key_file(path)
            add_key(path)
        vault, outcome = application.vault(), "are encrypted with the newest key"
        count = application.run(lambda connection: operations.rotate_credentials(connection, vault))
    sentence = f"the credentials of {count} servers {outcome}"
    print_result({"servers": count}, sentence, as_json=as_json)
