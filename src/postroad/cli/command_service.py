"""Other commands as services, for programs that need their own process, such as Celery.

With `postroad exchange serve --workers N` several servers share one port. Each worker has its own
listening socket; the kernel distributes the connections. The parent opens the sockets and keeps
them open, so that a connection waits, and is not refused, while a worker is restarted. SIGHUP
restarts the workers one by one with the currently installed code: a new worker serves before the
old one stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from postroad.cli.log_file import current_log
from postroad.cli.parts import PartContext
from postroad.service import Service, first_of

GRACE_SECONDS = 15.0
PIECE_BYTES = 65_536
WATCH_SECONDS = 0.5
START_SECONDS = 60.0
# The kernel terminates the command when its parent ends, however that happens.
ENTRY = """
import ctypes, os, sys
if prctl := getattr(ctypes.CDLL(None), "prctl", None):
    prctl(1, 15)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(0)
from postroad.cli import run
run()
"""


class CommandService(Service):
    """Runs a command of `postroad` until stopped; the service fails if the command ends earlier.

    The command has its own process group, which is killed as a whole when the command ends. With a
    `listener`, which it inherits as `--fd`, it is ready when it has written its first line.
    """

    def __init__(
        self,
        name: str,
        context: PartContext,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        super().__init__(name)
        self._environment = environment or {}
        self._context = context
        inherited = [] if listener is None else [listener.fileno()]
        self._arguments = [*arguments, *(f"--fd={descriptor}" for descriptor in inherited)]
        self._inherited = inherited
        self.pid: int | None = None

    async def run(self) -> None:
        """Start the command, copy its output to the log of the service, end it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            ENTRY,
            str(os.getpid()),
            *self._context.application.child_flags(),
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if self._inherited else asyncio.subprocess.STDOUT,
            pass_fds=self._inherited,
            env={**os.environ, "POSTROAD_DATABASE_URL": self._context.dsn, **self._environment},
            start_new_session=True,
        )
        self.pid = process.pid
        last = asyncio.create_task(self._copy_output(process))
        ended = asyncio.create_task(process.wait())
        try:
            if not self._inherited:
                self.announce_ready()
            await first_of(ended, self.stopping)
            if not ended.done():
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await asyncio.wait({ended}, timeout=GRACE_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            self.pid = None
        code, line = await ended, await last
        if not self.stopping.is_set():
            raise RuntimeError(f"{self.name} ended with code {code}: {line}".rstrip(": "))

    async def _copy_output(self, process: asyncio.subprocess.Process) -> str:
        """Copy the command's output to the log; return its last line."""
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        log, last = current_log(), ""
        # Read in pieces: one overlong line must not stop the others.
        while piece := await process.stdout.read(PIECE_BYTES):
            self.announce_ready()
            log.write(piece)
            lines = [line for line in piece.decode(errors="replace").splitlines() if line.strip()]
            last = lines[-1][:300] if lines else last
        return last


class Workers(Service):
    """Runs a command once for each listening socket, and again when it has ended."""

    def __init__(
        self,
        context: PartContext,
        command: Sequence[str],
        listeners: Sequence[socket.socket],
        *,
        url: str,
    ) -> None:
        super().__init__("exchange workers")
        self.url = url
        self._context = context
        self._command = command
        self._listeners = listeners

    async def run(self) -> None:
        """Keep a worker running for each socket."""
        workers: list[CommandService] = []
        restart = asyncio.Event()
        try:
            workers += await asyncio.gather(*map(self._start, self._listeners))
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, restart.set)
            self.announce_ready()
            while not await self.pause(WATCH_SECONDS):
                is_restart = restart.is_set()
                restart.clear()
                for place, worker in enumerate(workers):
                    if not is_restart and worker.is_running:
                        continue
                    try:
                        workers[place] = await self._start(self._listeners[place])
                    except (RuntimeError, TimeoutError):
                        # The failure is logged, and the next attempt follows.
                        continue
                    await _stop(worker)
        finally:
            await asyncio.gather(*map(_stop, workers))

    async def _start(self, listener: socket.socket) -> CommandService:
        worker = CommandService(
            "exchange worker", self._context, [*self._command, "--json"], listener=listener
        )
        async with asyncio.timeout(START_SECONDS):
            return await worker.__aenter__()


async def _stop(worker: CommandService) -> None:
    worker.request_stop()
    await worker.has_ended()
