"""Connections to SFTP servers, kept between tasks: a pool per server, checked before each use.

A connection belongs to the event loop that created it, so a pool belongs to one event loop. A
connection that failed in any way is closed, and so is one whose server was changed; an idle one is
checked before it is lent.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from postroad.clock import SYSTEM_CLOCK, Clock
from postroad.intake.errors import RemoteFileError
from postroad.intake.source import Source

UNCHECKED_IDLE_SECONDS = 2.0
MAX_IDLE_SECONDS = 120.0


@dataclass(slots=True)
class SourcePool:
    """Lends connections by server; the journal limits how many are in use."""

    clock: Clock = SYSTEM_CLOCK
    # By server: connection, fingerprint of its server's row, since when it is idle.
    _idle: dict[int, list[tuple[Source, str, float]]] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def lend(
        self, server_id: int, fingerprint: str, connect: Callable[[], Awaitable[Source]]
    ) -> AsyncIterator[Source]:
        """Lend a working connection: an idle one that answers, or a new one."""
        source = await self._take(server_id, fingerprint) or await connect()
        try:
            yield source
        except RemoteFileError:
            # An error of the file: the connection has answered.
            self._keep(server_id, fingerprint, source)
            raise
        except BaseException:
            await source.close()
            raise
        if source.is_broken:
            await source.close()
        else:
            self._keep(server_id, fingerprint, source)

    async def close(self) -> None:
        """Close the idle connections."""
        for idle in list(self._idle.values()):
            for source, _, _ in idle:
                await source.close()
        self._idle.clear()

    async def _take(self, server_id: int, fingerprint: str) -> Source | None:
        idle = self._idle.get(server_id, [])
        while idle:
            source, of, since = idle.pop()
            rest = self.clock.monotonic() - since
            if of == fingerprint and rest < MAX_IDLE_SECONDS:
                is_recent = rest < UNCHECKED_IDLE_SECONDS and not source.connection.is_closed()
                if is_recent or await source.is_healthy():
                    return source
            await source.close()
        return None

    def _keep(self, server_id: int, fingerprint: str, source: Source) -> None:
        idle = self._idle.setdefault(server_id, [])
        idle.append((source, fingerprint, self.clock.monotonic()))
