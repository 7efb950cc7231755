"""Connections to SFTP servers, kept between tasks.

A pool belongs to one event loop, as its connections do. A connection that failed in any way is
closed, and so is one whose server was changed; an idle one is checked before it is lent.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from postroad.clock import SYSTEM_CLOCK
from postroad.intake.errors import RemoteFileError
from postroad.intake.source import Source
from postroad.postgres.calls import Row

UNCHECKED_IDLE_SECONDS = 2.0
MAX_IDLE_SECONDS = 120.0
_login_of = itemgetter("host", "port", "username", "credentials", "host_key")


@dataclass(slots=True)
class SourcePool:
    """Lends connections by server; the journal limits how many are in use."""

    # By server: the connection, the login that it was opened with, and since when it is idle.
    _idle: defaultdict[int, list[tuple[Source, Any, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @contextlib.asynccontextmanager
    async def lend(
        self, server: Row, connect: Callable[[Row], Awaitable[Source]]
    ) -> AsyncIterator[Source]:
        """Lend a working connection: an idle one that answers, or a new one."""
        idle, login = self._idle[server["id"]], _login_of(server)
        source = await _take(idle, login) or await connect(server)
        is_usable = False
        try:
            yield source
            is_usable = not source.is_broken
        except RemoteFileError:
            # The error concerns the file: the connection works.
            is_usable = True
            raise
        finally:
            if is_usable:
                idle.append((source, login, SYSTEM_CLOCK.monotonic()))
            else:
                await source.close()

    async def close(self) -> None:
        """Close the idle connections."""
        for idle in list(self._idle.values()):
            for source, _, _ in idle:
                await source.close()
        self._idle.clear()


async def _take(idle: list[tuple[Source, Any, float]], login: Any) -> Source | None:
    while idle:
        source, of, since = idle.pop()
        rest = SYSTEM_CLOCK.monotonic() - since
        if of == login and rest < MAX_IDLE_SECONDS:
            is_recent = rest < UNCHECKED_IDLE_SECONDS and not source.connection.is_closed()
            if is_recent or await source.is_healthy():
                return source
        await source.close()
    return None
