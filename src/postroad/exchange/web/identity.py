"""Who calls: the client of a token, and what it may do."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from fastapi import Request

from postroad.exchange.errors import NotAllowed
from postroad.postgres.journal import Journal
from postroad.web import TokenMissing, bearer_token, hash_token

__all__ = ["Caller", "Identity"]

CLIENT = "select * from exchange.client_by_secret(p_secret_hash => %s)"
# For so long a token that was renewed or withdrawn is still known: decision 0024.
REMEMBERED_SECONDS = 2.0
REMEMBERED_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """A known client."""

    id: str
    is_admin: bool
    databases: frozenset[str] | None
    recipients: frozenset[str]
    may_send: bool
    may_take: bool

    def require(self, right: Literal["send", "take"], database: str) -> None:
        """Raise NotAllowed unless the client may send to a database, or take from it."""
        has_right = self.may_send if right == "send" else self.may_take
        if not has_right or (self.databases is not None and database not in self.databases):
            raise NotAllowed(
                f"{self.id} has no right to {right} on database {database}",
                hint="an administrator grants it with: postroad exchange clients change",
            )

    def recipient(self, wanted: str | None) -> str:
        """Return for whom the client fetches. Raises NotAllowed for somebody else."""
        if wanted is None or wanted == self.id:
            return self.id
        if wanted not in self.recipients:
            raise NotAllowed(
                f"{self.id} may not fetch for {wanted}",
                hint="leave recipient out, or have it granted: clients change --recipient",
            )
        return wanted


class Identity:
    """Looks clients up by their token; a known one is remembered for a moment."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, tuple[float, Caller]] = {}

    async def caller(self, request: Request) -> Caller:
        """Return who calls. Raises TokenMissing."""
        token = bearer_token(request)
        moment, caller = self._known.get(token, (0.0, None))
        if caller is not None and time.monotonic() - moment < REMEMBERED_SECONDS:
            return caller
        rows = await self._journal.rows(CLIENT, hash_token(token))
        if not rows:
            self._known.pop(token, None)
            raise TokenMissing("nobody has this token", hint="ask an administrator for one")
        row = rows[0]
        caller = Caller(
            id=row["id"],
            is_admin=row["is_admin"],
            databases=None if row["databases"] is None else frozenset(row["databases"]),
            recipients=frozenset(row["recipients"]),
            may_send=row["may_send"],
            may_take=row["may_take"],
        )
        if len(self._known) >= REMEMBERED_MOST:
            self._known.clear()
        self._known[token] = (time.monotonic(), caller)
        return caller

    async def admin(self, request: Request) -> Caller:
        """Return who calls, an administrator. Raises TokenMissing, NotAllowed."""
        caller = await self.caller(request)
        if not caller.is_admin:
            raise NotAllowed(
                f"{caller.id} is not an administrator",
                hint="use the token of a client that was added with: clients add --admin",
            )
        return caller
