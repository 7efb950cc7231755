"""`postroad console`: manages the accounts of the console, on the server itself."""

import click

from postroad.cli.context import Application
from postroad.cli.derived import MAX_LIMIT, action_command, list_command
from postroad.console.resources import ACCOUNT_ACTIONS, ACCOUNTS


@click.group()
def console() -> None:
    """Manage the accounts of the console."""


console.add_command(list_command(ACCOUNTS, Application.run, limit=MAX_LIMIT))
for action in ACCOUNT_ACTIONS:
    console.add_command(action_command(action, Application.run))
