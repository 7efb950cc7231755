"""Accounts, sessions and the audit log: the calls of schema `console`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, get_args

import psycopg
from psycopg.types.json import Jsonb

from postroad.console.connections import Connections
from postroad.console.errors import (
    AccountInvalid,
    LastAdmin,
    LoginRefused,
    NameTaken,
    TooManyLogins,
)
from postroad.console.passwords import hash_password, is_password_of, new_password
from postroad.postgres.calls import Row, call, select
from postroad.postgres.connections import Pool
from postroad.settings import ConsoleSettings
from postroad.web.tokens import hash_token, new_token

T = TypeVar("T")
Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
Outcome = Literal["begun", "done", "failed", "refused"]
FIRST_ACCOUNT = "admin"


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a signed-in account; its `token` is only in the browser's cookie."""

    account: str
    role: Role
    expires_at: datetime
    token: str = ""
    address: str = ""

    def may(self, role: Role) -> bool:
        """Check whether the role suffices: viewer < operator < admin."""
        return ROLES.index(self.role) >= ROLES.index(role)


class Accounts:
    """The calls of schema `console`, each in its own transaction."""

    def __init__(self, pool: Pool) -> None:
        self._run = Connections(pool.connection).run

    async def ensure_first(self) -> str | None:
        """Create the account `admin` if there is no account; return its password, shown once.

        Each start creates a new password until the account is used, so that a password that was
        not seen can be replaced by a restart.
        """
        password = new_password()
        made = await self._call("put_first_account", FIRST_ACCOUNT, hash_password(password))
        return password if made else None

    async def put(self, name: str, role: Role | None = None, password: str | None = None) -> None:
        """Add or change a local account; it has to sign in again.

        Raises AccountInvalid, LastAdmin, NameTaken.
        """
        hashed = hash_password(password) if password is not None else None
        with _refusals(name, role):
            await self._call("put_account", name, role, hashed)

    async def put_identity(self, issuer: str, subject: str, name: str, role: Role) -> str:
        """Add or find the account of a provider's user, with the current role; return its name.

        Raises AccountInvalid, NameTaken.
        """
        with _refusals(name, role):
            return str(await self._call("put_identity", issuer, subject, name, role))

    async def drop(self, name: str) -> bool:
        """Remove an account; False if it does not exist. Raises LastAdmin."""
        with _refusals(name):
            return bool(await self._call("drop_account", name))

    async def roles(self) -> dict[str, Role]:
        """Return the roles of all accounts by name. Read-only."""
        return {row["name"]: row["role"] for row in await self._select("accounts")}

    async def sign_in(
        self, name: str, password: str, address: str, settings: ConsoleSettings
    ) -> Session:
        """Compare the password and open a session. Raises LoginRefused, TooManyLogins.

        The attempt is counted before the comparison, which is deliberately expensive.
        """
        if "\0" in name:
            raise LoginRefused("the name or the password is wrong")
        limits = settings.login_attempts, settings.login_window
        (found,) = await self._select("begin_login", name, address, *limits)
        if not found["is_allowed"]:
            raise TooManyLogins("too many failed logins", hint="try again in a few minutes")
        if not await is_password_of(password, found["password_hash"]):
            raise LoginRefused("the name or the password is wrong")
        return await self.open(name, address, settings.session_lifetime)

    async def open(self, name: str, address: str, lifetime: timedelta) -> Session:
        """Open a session for an account whose owner was identified."""
        token = new_token("prs")
        await self._call("open_session", name.lower(), hash_token(token), address, lifetime)
        session = await self.session(token, address)
        if session is None:
            raise LoginRefused("the account does not exist any more")
        return session

    async def session(self, token: str, address: str = "") -> Session | None:
        """Return the session of a token; None if there is none."""
        found = await self._select("find_session", hash_token(token))
        return Session(**found[0], token=token, address=address) if found else None

    async def close(self, token: str) -> None:
        """End a session."""
        await self._call("close_session", hash_token(token))

    async def begin_audit(
        self,
        session: Session,
        action: str,
        target: str,
        detail: Mapping[str, Any] | None = None,
        outcome: Outcome = "begun",
    ) -> int:
        """Record an action that is about to run, or was refused; return the row's id."""
        who = session.account, session.role, session.address
        given = Jsonb(dict(detail or {}))
        return int(await self._call("begin_audit", *who, action, target, given, outcome))

    async def audited(
        self,
        session: Session,
        action: str,
        target: str,
        do: Callable[[], Awaitable[T]],
        detail: Mapping[str, Any] | None = None,
    ) -> T:
        """Run an operation; record that it is about to run, and its outcome."""
        audit = await self.begin_audit(session, action, target, detail)
        try:
            result = await do()
        except Exception as failure:
            await self._call("end_audit", audit, "failed", str(failure))
            raise
        noted = Jsonb({"result": result}) if isinstance(result, int | str) else None
        await self._call("end_audit", audit, "done", None, noted)
        return result

    async def _call(self, function: str, *parameters: object) -> Any:
        return await self._run(call, f"console.{function}", *parameters)

    async def _select(self, function: str, *parameters: object) -> list[Row]:
        return await self._run(select, f"console.{function}", *parameters)


@contextmanager
def _refusals(name: str, role: str | None = None) -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.CheckViolation, psycopg.DataError) as refused:
        raise AccountInvalid(
            f"account {name!r} with role {role!r} is not valid",
            hint="names consist of a-z, 0-9, _ . @ + -; roles are viewer, operator, admin",
        ) from refused
    except psycopg.Error as refused:
        leaf = {"KN001": LastAdmin, "KN002": NameTaken}.get(refused.sqlstate or "")
        if leaf is None:
            raise
        raise leaf(str(refused.diag.message_primary), hint=refused.diag.message_hint) from refused
