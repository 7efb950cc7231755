"""`BridgeService`: what the three kinds of bridges share.

```
connecting ──▶ transferring ──failure──▶ waiting ──backoff──▶ connecting
                  │  ▲
                  ▼  │ state of the bridge
                paused, drained
```

A bridge whose other end is down is retried with backoff. The problem that stops it is recorded in
the database that stores its state, and cleared after the next success.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import psycopg
from psycopg import IsolationLevel

from postroad.bridge.calls import call
from postroad.bridge.errors import BridgeError, translate
from postroad.bus import calls as bus_calls
from postroad.bus.errors import BusError
from postroad.bus.notifier import Notifier
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.session import run_async
from postroad.errors import first_line
from postroad.postgres.calls import Connection
from postroad.postgres.connections import connect_async
from postroad.service import Service, first_of

logger = logging.getLogger(__name__)

STATE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """How a bridge works.

    `batch_bytes` is approximate. `connections` are those to the source: one less is the number of
    batches taken ahead. The ids of arrived messages are kept for `keep`, so that a message that
    arrives again by another route is dropped. The source is polled every `poll_interval` when no
    notice arrives; `listen` needs a direct connection.
    """

    batch_messages: int = 4_000
    batch_bytes: int = 4_000_000
    connections: int = 3
    keep: timedelta = timedelta(days=1)
    poll_interval: timedelta = timedelta(milliseconds=100)
    listen: bool = True


class BridgeService(Service):
    """Runs one bridge; a subclass writes `transfer` and `install`."""

    # How long `transfer` may take to return after a request to stop, before it is cancelled.
    stop_grace_seconds = 0.0

    def __init__(
        self, bridge: str, queue: str, dsn: str, settings: PumpSettings | None = None
    ) -> None:
        super().__init__(f"bridge {bridge}")
        self.bridge = bridge
        self.queue = queue
        self._dsn = dsn
        self.settings = settings or PumpSettings()
        self.delivered = 0
        self.dropped = 0
        self.refused = 0
        self._backoff = Backoff()
        # Whether something succeeded since the last failure, and whether a problem may be recorded.
        self._has_succeeded = False
        self._has_problem = True

    @abstractmethod
    async def install(self) -> None:
        """Create what the bridge needs at both ends. Repeatable."""

    @abstractmethod
    async def transfer(self) -> None:
        """Connect to both ends and transfer messages until the service is to stop."""

    async def run(self) -> None:
        """Transfer until stopped; a failure at either end is retried."""
        work = asyncio.create_task(self._work(), name=self.name)
        try:
            await first_of(work, self.stopping)
            await asyncio.wait({work}, timeout=self.stop_grace_seconds)
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    async def _work(self) -> None:
        while not self.stopping.is_set():
            try:
                await self.transfer()
            except* Exception as failures:
                # Starting a bridge does not wait for the other end.
                self.announce_ready()
                problem = describe_failure(failures)
                _, unexpected = failures.split((*SURVIVABLE, BridgeError))
                extra = {"bridge": self.bridge, "reason": problem}
                logger.warning("bridge_failed", extra=extra, exc_info=unexpected)
                self._has_succeeded, self._has_problem = False, True
                with contextlib.suppress(*SURVIVABLE):
                    async with self.connect("watch", autocommit=True) as connection:
                        await call(connection, "note_problem", self.bridge, problem)
                self.signals.emit("failed", problem)
                await self.pause(self._backoff.next_seconds())

    async def stand_by(self, signal: str) -> None:
        """Wait before the next attempt, because another process runs the bridge or it is paused."""
        self.announce_ready()
        self.signals.emit(signal)
        await self.pause(STATE_SECONDS)

    def succeed(self) -> None:
        """Note a success. Connecting does not count: the next message may be the one that fails."""
        self._has_succeeded = True
        self._backoff.reset()

    async def read_state(self, watch: Connection) -> str:
        """Return the state of the bridge; clear its recorded problem after a success."""
        if self._has_succeeded and self._has_problem:
            await call(watch, "note_problem", self.bridge, None)
            self._has_problem = False
        return str(await call(watch, "state", self.bridge))

    @asynccontextmanager
    async def connect(
        self, part: str, dsn: str | None = None, *, autocommit: bool = False
    ) -> AsyncIterator[Connection]:
        """Connect to the database of the bridge, or to the given one; roll back at the end."""
        connection = await connect_async(
            dsn or self._dsn,
            application_name=f"postroad bridge {self.bridge} {part}",
            autocommit=autocommit,
        )
        try:
            # Takes refuse higher isolation levels, and the ledger is read after waiting for a lock.
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
            await connection.execute(
                "select set_config('tcp_keepalives_idle', '20', false),"
                " set_config('tcp_keepalives_interval', '5', false),"
                " set_config('tcp_keepalives_count', '3', false),"
                " set_config('idle_in_transaction_session_timeout', '5min', false)"
            )
            await connection.commit()
            yield connection
        finally:
            # Not `async with`: that would commit, and a batch that failed must roll back.
            await connection.close()


def notifier_on(connection: Connection) -> Notifier:
    """Create a notifier that sends on this connection; the caller closes it."""

    async def send(queues: list[str]) -> None:
        await run_async(connection, bus_calls.notify(*queues))

    return Notifier(send)


def describe_failure(failure: BaseException) -> str:
    """Return one line on why a bridge does not work."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if isinstance(failure, psycopg.Error):
        failure = translate(failure) or failure
    if isinstance(failure, BusError | BridgeError) and failure.hint:
        return f"{failure} ({failure.hint})"
    return first_line(failure)
