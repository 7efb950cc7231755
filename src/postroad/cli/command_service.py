"""Another command as a service, for programs that need their own process, such as Celery."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from postroad.cli.log_file import current_log
from postroad.cli.parts import PartContext
from postroad.service import Service, first_of

GRACE_SECONDS = 15.0
PIECE_BYTES = 65_536
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
    """Runs a command of `postroad` until stopped; if it ends earlier, the service has failed.

    The command has its own process group, which is killed as a whole when the command ends.
    """

    def __init__(
        self,
        name: str,
        context: PartContext,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name)
        self._environment = environment or {}
        self._context = context
        self._arguments = arguments
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
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "POSTROAD_DATABASE_URL": self._context.dsn, **self._environment},
            start_new_session=True,
        )
        self.pid = process.pid
        last = asyncio.create_task(_copy_output(process))
        ended = asyncio.create_task(process.wait())
        try:
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


async def _copy_output(process: asyncio.subprocess.Process) -> str:
    """Copy the command's output to the log; return its last line."""
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    log, last = current_log(), ""
    # Read in pieces: one overlong line must not stop the others.
    while piece := await process.stdout.read(PIECE_BYTES):
        log.write(piece)
        lines = [line for line in piece.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1][:300] if lines else last
    return last
