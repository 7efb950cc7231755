"""A service that calls `work()` repeatedly on a connection that it reopens after a failure.

```
connecting ──> working ──nothing to do──> waiting ──woken, or the interval is over──> working
    ▲             └── connection lost, server away: logged, backoff ──┐
    └─────────────────────────────────────────────────────────────────┘
```
"""

from __future__ import annotations

from datetime import timedelta

from postroad.bus import calls as bus_calls
from postroad.bus.session import run_async
from postroad.coordination.errors import CoordinationError
from postroad.postgres.calls import Connection, call
from postroad.postgres.connected_service import ConnectedService
from postroad.postgres.listen import ListenHub, Notice
from postroad.service import Service

KEEP_DEFAULT = timedelta(days=7)
PURGE_EVENTS = 5_000
UPKEEP_INTERVAL = timedelta(seconds=1)


class PollingService(ConnectedService):
    """Calls `work()` repeatedly; a subclass writes it. Runs and stops other services with it."""

    def __init__(
        self,
        name: str,
        dsn: str,
        *services: Service,
        notice: tuple[str, str, str] | None = None,
        pause: timedelta,
        listen: bool = True,
    ) -> None:
        """Pause after a call without work, at most until `notice`: database, channel, payload."""
        super().__init__(name)
        self.dsn = dsn
        self._services = services
        self._notice = notice if listen else None
        self._pause_seconds = pause.total_seconds()
        self._prepared: Connection | None = None

    async def prepare(self, connection: Connection) -> None:
        """Run once per connection, before the first `work()`."""

    async def work(self, connection: Connection) -> bool:
        """Do a piece of work; return whether there is more. Written by the subclass."""
        raise NotImplementedError

    def request_stop(self) -> None:
        """Ask this service and its sub-services to stop."""
        super().request_stop()
        for service in self._services:
            service.request_stop()

    async def run(self) -> None:
        """Work until stopped; a lost connection is retried, any other error ends the service."""
        try:
            await self.supervise(*self._services)
            for service in self._services:
                await service.ready()
            if self._notice is not None:
                hub = ListenHub(self._notice[0])
                hub.subscribe(self._notice[1], self._on_notice)
                await self.supervise(hub)
            await self.repeat(self._poll, self.dsn, event="coordination_interrupted")
        finally:
            await self.stop_supervised()

    async def _poll(self, connection: Connection) -> None:
        try:
            if self._prepared is not connection:
                await self.prepare(connection)
                self._prepared = connection
                self.announce_ready()
            again = await self.work(connection)
        except CoordinationError as failure:
            if not failure.retryable:
                self._report_failure(failure)
            raise
        self.signals.emit("worked", again)
        if not again:
            await self.changed.wait(self._pause_seconds)

    def _on_notice(self, notice: Notice) -> None:
        # Without a payload: notices may have been lost while the hub was connecting.
        if self._notice is not None and notice.payload in (None, self._notice[2]):
            self.changed.set()


class Upkeep(PollingService):
    """Removes finished events that are old enough, and maintains the queues of the bus."""

    def __init__(self, dsn: str, keep: timedelta) -> None:
        super().__init__("coordination upkeep", dsn, pause=UPKEEP_INTERVAL)
        self._keep = keep

    async def work(self, connection: Connection) -> bool:
        """Purge once, in a small transaction; return whether there may be more."""
        await run_async(connection, bus_calls.maintain(None))
        count = await call(connection, "coordination.purge", self._keep, PURGE_EVENTS)
        return bool(count >= PURGE_EVENTS)
