"""Another command as a service: for what insists on a process of its own, like Celery."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence

from postroad.cli.parts import PartContext
from postroad.service import Service

__all__ = ["CommandService"]

GRACE_SECONDS = 15.0


class CommandService(Service):
    """Runs the command until stopped; it ending by itself is a failure."""

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

    async def run(self) -> None:
        """Start, wait, end. The process stays in our group, so whoever kills that kills it, too."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from postroad.cli import run; run()",
            *self._context.application.child_flags(),
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,
            env={
                **os.environ,
                "POSTROAD_DATABASE_URL": self._context.dsn,
                **self._environment,
            },
        )
        self.announce_ready()
        ended = asyncio.create_task(process.wait())
        asked = asyncio.create_task(self.stopping.wait())
        await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if ended.done():
            raise RuntimeError(f"{self.name} ended with code {ended.result()}")
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await asyncio.shield(ended)
        except TimeoutError:
            process.kill()
            await ended
