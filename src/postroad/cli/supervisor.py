"""Runs services in parallel: started in stages, restarted when they end, stopped in reverse.

```
            ready                      ended or failed
starting ───────────────> running ───────────────────────> waiting (backoff) ───> starting
    │ not ready in time: cancelled ───────────────────────────^
    └──────────────── stop() ───────────> stopped
```

All services share the process and its event loop. A program that cannot run there, such as Celery,
is a `CommandService` with a child process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from psycopg.types.json import Jsonb

from postroad.backoff import Backoff
from postroad.cli.log_file import LogFile, log_to
from postroad.postgres.calls import Connection, call
from postroad.postgres.connected_service import ConnectedService
from postroad.service import Service, first_of

logger = logging.getLogger(__name__)

FIRST_DELAY = timedelta(seconds=0.5)
LONGEST_DELAY = timedelta(seconds=30)
# A service that ran this long has recovered: its next failure begins with the first backoff.
RECOVERED_AFTER_SECONDS = 60.0
READY_TIMEOUT_SECONDS = 120.0
STOP_TIMEOUT_SECONDS = 20.0
REPORT_INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """A service to run; `make` is called in a thread, once for each start."""

    name: str
    make: Callable[[], Service]
    # Services of one stage start and stop together; higher stages start later and stop earlier.
    stage: int = 0
    # The log of the service; by default the error stream of the process.
    log_file: Path | None = None
    # If it fails after it was ready, the process ends: it cannot be started twice in one process.
    is_vital: bool = False


class Supervised(Service):
    """One service, restarted whenever it ends."""

    def __init__(self, plan: ServicePlan, on_change: Callable[[], None]) -> None:
        super().__init__(plan.name)
        self.plan = plan
        self.state = "starting"
        self.since = datetime.now(UTC)
        self.restarts = 0
        self.error: str | None = None
        self.service: Service | None = None
        self._on_change = on_change
        self._away_seconds = 0.0

    @property
    def pid(self) -> int | None:
        """The id of the process in which it runs."""
        if self.service is None or not self.service.is_running:
            return None
        found: int | None = getattr(self.service, "pid", os.getpid())
        return found

    async def run(self) -> None:
        """Start, watch and restart the service until stopped."""
        with contextlib.closing(LogFile(self.plan.log_file)) as log:
            log_to(log)
            # No jitter: the delays are displayed, and the services of a process do not compete.
            backoff = Backoff(FIRST_DELAY, LONGEST_DELAY, chance=lambda: 1.0)
            while not self.stopping.is_set():
                begun = asyncio.get_running_loop().time()
                self._enter("starting")
                try:
                    await self._run_once()
                except Exception as failure:  # noqa: BLE001 - whatever it is, start again
                    self.error = f"{type(failure).__name__}: {failure}"[:300]
                else:
                    self.error = "ended without an error"
                if self.stopping.is_set():
                    break
                if self.plan.is_vital and self._ready.is_set():
                    self._enter("stopped")
                    raise RuntimeError(f"{self.name} failed: {self.error}")
                if asyncio.get_running_loop().time() - begun > RECOVERED_AFTER_SECONDS:
                    backoff.reset()
                self.restarts += 1
                self._enter("waiting")
                delay, self._away_seconds = max(backoff.next_seconds(), self._away_seconds), 0.0
                extra = {"service": self.name, "reason": self.error, "restart_in": delay}
                logger.warning("service_ended", extra=extra)
                await self.pause(delay)
            self._enter("stopped")

    def crash(self, away_seconds: float = 0.0) -> None:
        """End the service abruptly; it is started again after the given time or its backoff.

        A child process is killed, a service in this process is cancelled.
        """
        pid = self.pid
        if self.service is None or pid is None:
            return
        self._away_seconds = away_seconds
        if pid == os.getpid():
            self.service.cancel()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _run_once(self) -> None:
        service = await asyncio.to_thread(self.plan.make)
        self.service = service
        await service.start()
        ready = asyncio.create_task(service.ready())
        try:
            await first_of(ready, self.stopping, timeout_seconds=READY_TIMEOUT_SECONDS)
            if ready.done():
                ready.result()
                self.error = None
                self._enter("running")
                self.announce_ready()
                await service.join_or(self.stopping)
            elif not self.stopping.is_set():
                raise TimeoutError("not ready in time")
        finally:
            ready.cancel()
            await self._stop(service)

    async def _stop(self, service: Service) -> None:
        service.request_stop()
        if not await service.has_ended(STOP_TIMEOUT_SECONDS):
            logger.warning("service_cancelled", extra={"service": self.name})
            service.cancel()
            await service.has_ended(STOP_TIMEOUT_SECONDS)

    def _enter(self, state: str) -> None:
        self.state, self.since = state, datetime.now(UTC)
        self._on_change()


class Supervisor:
    """All services, started in order and stopped in reverse order."""

    def __init__(self) -> None:
        self.children: list[Supervised] = []
        self.changed = asyncio.Event()

    async def start(self, *plans: ServicePlan) -> None:
        """Start services and wait until they are ready, restarting them as often as necessary."""
        for stage in sorted({plan.stage for plan in plans}):
            fresh = [Supervised(plan, self.changed.set) for plan in plans if plan.stage == stage]
            self.children += fresh
            for child in fresh:
                await child.start()
            await asyncio.gather(*(child.ready() for child in fresh))

    def crash(self, name: str, away_seconds: float = 0.0) -> None:
        """End a service abruptly if it is running; it is started again."""
        for child in self.children:
            if child.name == name:
                child.crash(away_seconds)

    def restart(self, name: str) -> bool:
        """Ask a service to stop, so that it is started again; False if it cannot be restarted."""
        for child in self.children:
            if child.name == name and child.service is not None and not child.plan.is_vital:
                child.service.request_stop()
                return True
        return False

    async def report_delays(self, report: Callable[[str], object]) -> None:
        """Report the services that are not ready yet, with the last error of each, until cancelled.

        The first report comes after some seconds, further ones when something has changed.
        """
        last = ""
        while True:
            await asyncio.sleep(REPORT_INTERVAL_SECONDS)
            late = [child for child in self.children if child.state != "running"]
            shown = ", ".join(f"{child.name} ({child.error or child.state})" for child in late)
            if shown not in ("", last):
                report(f"not ready yet: {shown}")
            last = shown

    async def join_or(self, stopping: asyncio.Event) -> None:
        """Wait until asked to stop; raise the error of a vital service."""
        waits = [asyncio.create_task(child.join_or(stopping)) for child in self.children]
        try:
            await first_of(stopping, *waits)
            for wait in waits:
                if wait.done():
                    wait.result()
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self) -> None:
        """Stop all, the highest stage first."""
        for stage in sorted({child.plan.stage for child in self.children}, reverse=True):
            leaving = [child for child in self.children if child.plan.stage == stage]
            await asyncio.gather(*(child.stop() for child in leaving), return_exceptions=True)
        self.children.clear()


class Reporter(ConnectedService):
    """Reports the status of the services every few seconds and at every change."""

    def __init__(self, dsn: str, supervisor: Supervisor) -> None:
        super().__init__("up")
        self._dsn = dsn
        self._supervisor = supervisor

    async def run(self) -> None:
        """Report until stopped and once more, so that stopped services do not count as lost."""
        self.announce_ready()
        await self.repeat(self._follow, self._dsn, event="report_failed", level=logging.DEBUG)

    async def _follow(self, connection: Connection) -> None:
        changed = self._supervisor.changed
        changed.clear()
        await self._report(connection)
        await first_of(changed, self.stopping, timeout_seconds=REPORT_INTERVAL_SECONDS)
        if self.stopping.is_set():
            await self._report(connection)

    async def _report(self, connection: Connection) -> None:
        names = ("name", "state", "pid", "restarts", "error")
        reports = [
            {**{name: getattr(one, name) for name in names}, "since": one.since.isoformat()}
            for one in self._supervisor.children
        ]
        await call(connection, "console.report_services", socket.gethostname(), Jsonb(reports))
