"""The client of a token, and its rights."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from fastapi import Depends, Request

from postroad.exchange.errors import NotAllowed
from postroad.exchange.journal import ExchangeJournal
from postroad.web.errors import TokenMissing
from postroad.web.tokens import bearer_token, hash_token

# A renewed or removed token is accepted for this long: decision 0018.
REMEMBERED_SECONDS = 2.0
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """A known client."""

    id: str
    is_admin: bool
    databases: list[str] | None
    recipients: list[str]
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

    def require_admin(self) -> None:
        """Raise NotAllowed unless the client is an administrator."""
        if not self.is_admin:
            raise NotAllowed(
                f"{self.id} is not an administrator",
                hint="use the token of a client that was added with: clients add --admin",
            )

    def recipient(self, wanted: str | None) -> str:
        """Return the mailbox to fetch for, its own by default. Raises NotAllowed."""
        if wanted is None or wanted == self.id:
            return self.id
        if wanted not in self.recipients:
            raise NotAllowed(
                f"{self.id} may not fetch for {wanted}",
                hint="leave recipient out, or have it granted: clients change --recipient",
            )
        return wanted


class Identity:
    """Finds clients by their token; a known one is cached for a moment."""

    def __init__(self, journal: ExchangeJournal) -> None:
        self._journal = journal
        self._known: dict[str, tuple[float, Caller]] = {}

    async def caller(self, request: Request) -> Caller:
        """Return the client of a request. Raises TokenMissing."""
        token = bearer_token(request)
        moment, caller = self._known.get(token, (0.0, None))
        if caller is not None and time.monotonic() - moment < REMEMBERED_SECONDS:
            return caller
        rows = await self._journal.select("client_by_secret", hash_token(token))
        if not rows:
            self._known.pop(token, None)
            raise TokenMissing("the token is unknown", hint="ask an administrator for one")
        caller = Caller(**{field.name: rows[0][field.name] for field in fields(Caller)})
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[token] = (time.monotonic(), caller)
        return caller


async def caller_of(request: Request) -> Caller:
    """Return the client of a request. Raises TokenMissing."""
    identity: Identity = request.app.state.identity
    return await identity.caller(request)


Client = Annotated[Caller, Depends(caller_of)]


async def administrator_of(request: Request) -> Caller:
    """Return the administrator of a request. Raises TokenMissing, NotAllowed."""
    caller = await caller_of(request)
    caller.require_admin()
    return caller
