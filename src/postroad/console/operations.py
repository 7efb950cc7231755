"""What an administrator may do with accounts from the command line."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Annotated, Any

from psycopg import AsyncConnection

from postroad.console.accounts import Accounts, Role
from postroad.console.errors import AccountInvalid
from postroad.console.passwords import new_password


def _accounts(connection: AsyncConnection[Any]) -> Accounts:
    """Return the accounts over one connection, in the caller's transaction."""
    pool: Any = SimpleNamespace(connection=lambda: nullcontext(connection))
    return Accounts(pool)


async def add(
    connection: AsyncConnection[Any],
    name: str,
    *,
    role: Annotated[Role, "What it may do."] = "viewer",
) -> dict[str, str]:
    """Make an account, or give one another role and password; the password is printed once.

    Example: postroad console add maria --role operator
    """
    fresh = new_password()
    await _accounts(connection).put(name, role, fresh)
    return {"password": fresh}


async def password(connection: AsyncConnection[Any], name: str) -> dict[str, str]:
    """Give an account a new password, printed once; its sessions end.

    Example: postroad console password admin
    """
    fresh, accounts = new_password(), _accounts(connection)
    if name not in {one.name for one in await accounts.all()}:
        raise AccountInvalid(
            f"there is no account {name}", hint=f"make it: postroad console add {name}"
        )
    await accounts.put(name, None, fresh)
    return {"password": fresh}


async def drop(connection: AsyncConnection[Any], name: str) -> bool:
    """Remove an account; the last admin stays.

    Example: postroad console drop maria
    """
    return await _accounts(connection).drop(name)
