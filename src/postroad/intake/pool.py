"""Connections to SFTP servers, kept between tasks: a pool per server, checked before each use.

A connection belongs to the event loop that made it, so a pool belongs to one worker process, whose
loop lives as long as the process. A connection that failed in any way is dropped, never lent again;
one that has been idle is asked before it is lent; one whose server was changed is dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from postroad.clock import SYSTEM_CLOCK, Clock
from postroad.intake.errors import RemoteFileError
from postroad.intake.source import Source

__all__ = ["SourcePool"]

IDLE_SECONDS_UNCHECKED = 2.0
IDLE_SECONDS_MOST = 120.0


@dataclass(slots=True)
class _Idle:
    source: Source
    fingerprint: str
    since: float


@dataclass(slots=True)
class SourcePool:
    """Lends connections by server; the number in use is bounded by who asks."""

    clock: Clock = SYSTEM_CLOCK
    _idle: dict[int, list[_Idle]] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def lend(
        self, server_id: int, fingerprint: str, connect: Callable[[], Awaitable[Source]]
    ) -> AsyncIterator[Source]:
        """Give a working connection: an idle one that answers, or a new one."""
        source = await self._take(server_id, fingerprint) or await connect()
        try:
            yield source
        except RemoteFileError:
            # The file's fault; the connection answered.
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
        """Close what is idle."""
        for idle in list(self._idle.values()):
            for one in idle:
                await one.source.close()
        self._idle.clear()

    async def _take(self, server_id: int, fingerprint: str) -> Source | None:
        idle = self._idle.get(server_id, [])
        while idle:
            one = idle.pop()
            rest = self.clock.monotonic() - one.since
            fits = one.fingerprint == fingerprint and rest < IDLE_SECONDS_MOST
            if fits and rest < IDLE_SECONDS_UNCHECKED:
                fits = not one.source.connection.is_closed()
            elif fits:
                fits = await one.source.is_healthy()
            if fits:
                return one.source
            await one.source.close()
        return None

    def _keep(self, server_id: int, fingerprint: str, source: Source) -> None:
        self._idle.setdefault(server_id, []).append(
            _Idle(source, fingerprint, self.clock.monotonic())
        )
