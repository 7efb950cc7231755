"""`postroad exchange serve --workers N`: several servers on one port of one machine.

Each worker is a process with a listening socket of its own on the same port; the kernel spreads the
connections over them. This process opens the sockets and keeps them open, so that a connection
waits, and is not refused, while a worker is restarted. SIGHUP restarts the workers one by one, with
the code that is installed then: a new one serves before the old one stops.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence

from postroad.cli.command_service import CommandService
from postroad.cli.parts import PartContext
from postroad.service import Service

WATCH_SECONDS = 0.5
START_SECONDS = 60.0


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
                        # It is logged; the next attempt follows.
                        continue
                    await _stop(worker)
        finally:
            await asyncio.gather(*map(_stop, workers))

    async def _start(self, listener: socket.socket) -> CommandService:
        """Start a worker and wait until it serves."""
        worker = CommandService(
            "exchange worker", self._context, [*self._command, "--json"], listener=listener
        )
        async with asyncio.timeout(START_SECONDS):
            return await worker.__aenter__()


async def _stop(worker: CommandService) -> None:
    worker.request_stop()
    await worker.has_ended()
