"""`postroad console`: the accounts of the console, from the server itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from postroad.cli.context import Application, pass_application
from postroad.cli.output import json_option, print_json, print_table
from postroad.console.accounts import ROLES, Account, Accounts, Role
from postroad.console.errors import AccountInvalid
from postroad.console.passwords import new_password
from postroad.postgres.connections import open_async_pool

T = TypeVar("T")


@click.group()
def console() -> None:
    """Manage who may use the console."""


@console.command("accounts")
@json_option
@pass_application
def list_accounts(application: Application, as_json: bool) -> None:
    """List the accounts and their roles.

    Example: postroad console accounts
    """
    found = _with_accounts(application, _list)
    columns = ("name", "role", "sessions", "created_at", "changed_at")
    rows = [[getattr(one, name) for name in columns] for one in found]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table([name.replace("_", " ") for name in columns], rows)


@console.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True)
@json_option
@pass_application
def add(application: Application, name: str, role: Role, as_json: bool) -> None:
    """Make an account, or give one another role and password; the password is printed once.

    Example: postroad console add maria --role operator
    """
    password = new_password()
    _with_accounts(application, lambda accounts: accounts.put(name, role, password))
    _tell(name, password, as_json=as_json)


@console.command()
@click.argument("name")
@json_option
@pass_application
def password(application: Application, name: str, as_json: bool) -> None:
    """Give an account a new password, printed once; its sessions end.

    Example: postroad console password admin
    """
    fresh = new_password()

    async def change(accounts: Accounts) -> None:
        if name not in {one.name for one in await accounts.all()}:
            raise AccountInvalid(
                f"there is no account {name}", hint=f"make it: postroad console add {name}"
            )
        await accounts.put(name, None, fresh)

    _with_accounts(application, change)
    _tell(name, fresh, as_json=as_json)


@console.command()
@click.argument("name")
@pass_application
def drop(application: Application, name: str) -> None:
    """Remove an account; the last admin stays.

    Example: postroad console drop maria
    """
    is_gone = _with_accounts(application, lambda accounts: accounts.drop(name))
    click.echo(f"account {name} {'removed' if is_gone else 'was not there'}")


async def _list(accounts: Accounts) -> list[Account]:
    return list(await accounts.all())


def _with_accounts(application: Application, do: Callable[[Accounts], Awaitable[T]]) -> T:
    async def run(dsn: str) -> T:
        pool = await open_async_pool(dsn, application_name="postroad console")
        try:
            return await do(Accounts(pool))
        finally:
            await pool.close()

    with application.database() as dsn:
        return asyncio.run(run(dsn))


def _tell(name: str, fresh: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "password": fresh})
    else:
        print_table(("account", "password"), [(name, fresh)])
