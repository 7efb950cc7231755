"""`postroad exchange serve --workers N`: several servers on one port of one machine.

Each worker is a process with a listening socket of its own on the same port; the kernel spreads the
connections over them. This process opens the sockets and keeps them open, so that a connection
waits, and is not refused, while a worker is restarted. SIGHUP restarts the workers one by one, with
the code that is installed then: a new one serves before the old one stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

from postroad.service import Service

logger = logging.getLogger(__name__)

WATCH_SECONDS = 0.5
START_SECONDS = 60.0
# A worker that stops cuts off the calls that it still serves after ten seconds.
STOP_SECONDS = 30.0
PR_SET_PDEATHSIG = 1


class Workers(Service):
    """Runs a command once for each listening socket, and again when it has ended."""

    def __init__(
        self, command: Sequence[str], listeners: Sequence[socket.socket], *, url: str, dsn: str
    ) -> None:
        super().__init__("exchange workers")
        self.url = url
        self._command = command
        self._listeners = listeners
        self._environment = {**os.environ, "POSTROAD_DATABASE_URL": dsn}
        self._is_restart_due = False

    def _restart(self) -> None:
        self._is_restart_due = True

    async def run(self) -> None:
        """Keep a worker running for each socket."""
        workers: list[asyncio.subprocess.Process] = []
        try:
            workers += await asyncio.gather(*map(self._start, self._listeners))
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._restart)
            self.announce_ready()
            while not await self.pause(WATCH_SECONDS):
                is_restart, self._is_restart_due = self._is_restart_due, False
                for place, worker in enumerate(workers):
                    if not is_restart and worker.returncode is None:
                        continue
                    try:
                        workers[place] = await self._start(self._listeners[place])
                    except RuntimeError as failure:
                        logger.warning("worker_failed", extra={"reason": str(failure)})
                        continue
                    await _stop(worker)
        finally:
            await asyncio.gather(*map(_stop, workers))

    async def _start(self, listener: socket.socket) -> asyncio.subprocess.Process:
        """Start a worker and wait until it serves."""
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postroad", *self._command),
            *("--fd", str(listener.fileno()), "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=self._environment,
            pass_fds=[listener.fileno()],
            # A worker must not outlive this process, however it ends.
            preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )
        line = b""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_SECONDS):
                    line = await worker.stdout.readline() if worker.stdout is not None else b""
        finally:
            if not line:
                await _stop(worker)
        if not line:
            raise RuntimeError(f"a worker ended with code {worker.returncode}; see its log")
        return worker


async def _stop(worker: asyncio.subprocess.Process) -> None:
    if worker.returncode is None:
        worker.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await worker.wait()
    except TimeoutError:
        worker.kill()
        await worker.wait()
