"""Operations of administrators on accounts, for the command line."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Annotated, Any

from postroad.console.accounts import Accounts, Role
from postroad.console.errors import AccountInvalid
from postroad.console.passwords import new_password
from postroad.postgres.calls import Connection


def _accounts(connection: Connection) -> Accounts:
    """Return the accounts of one connection, in the caller's transaction."""
    pool: Any = SimpleNamespace(connection=lambda: nullcontext(connection))
    return Accounts(pool)


async def add(
    connection: Connection,
    name: str,
    *,
    role: Annotated[Role, "The role of the account."] = "viewer",
) -> dict[str, str]:
    """Add an account, or change its role and password; the password is printed once.

    Example: postroad console add maria --role operator
    """
    fresh = new_password()
    await _accounts(connection).put(name, role, fresh)
    return {"password": fresh}


async def password(connection: Connection, name: str) -> dict[str, str]:
    """Set a new password for an account, printed once; its sessions end.

    Example: postroad console password admin
    """
    fresh, accounts = new_password(), _accounts(connection)
    if name not in await accounts.roles():
        raise AccountInvalid(
            f"there is no account {name}", hint=f"add it: postroad console add {name}"
        )
    await accounts.put(name, None, fresh)
    return {"password": fresh}


async def drop(connection: Connection, name: str) -> bool:
    """Remove an account; the last admin cannot be removed.

    Example: postroad console drop maria
    """
    return await _accounts(connection).drop(name)
