"""Operations of administrators on accounts, for the command line."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Annotated, Any

from postroad.console.accounts import Accounts, Role
from postroad.console.errors import AccountInvalid
from postroad.console.passwords import new_password
from postroad.postgres.calls import Connection

TOKEN_LIFETIME_DEFAULT = timedelta(days=30)


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
    await _check_known(connection, name)
    fresh = new_password()
    await _accounts(connection).put(name, None, fresh)
    return {"password": fresh}


async def token(
    connection: Connection,
    name: str,
    *,
    lifetime: Annotated[timedelta, "How long it is valid."] = TOKEN_LIFETIME_DEFAULT,
) -> dict[str, str]:
    """Create a token with which a program acts as an account over HTTP, printed once.

    It ends with its lifetime, and with a new password or another role of the account.

    Example: postroad console token maria --lifetime 90d
    """
    await _check_known(connection, name)
    session = await _accounts(connection).open(name, "token", lifetime)
    return {"token": session.token}


async def _check_known(connection: Connection, name: str) -> None:
    if name not in await _accounts(connection).roles():
        raise AccountInvalid(
            f"there is no account {name}", hint=f"add it: postroad console add {name}"
        )


async def drop(connection: Connection, name: str) -> bool:
    """Remove an account; the last admin cannot be removed.

    Example: postroad console drop maria
    """
    return await _accounts(connection).drop(name)
