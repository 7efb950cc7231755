"""Runs services as child processes: started in order, again when they end, stopped together.

```
            ready line                 ended
starting ───────────────> running ───────────────> waiting (backoff) ───> starting
    │ not ready in time: killed ────────────────────────^
    └──────────────── stop() ───────────> stopped
```

A child is told what it needs by one line on its standard input, and says that it is ready by one
line on its standard output. That input stays open for as long as the supervisor lives: a child that
reads its end knows that the supervisor was killed, and leaves by itself; so the next one finds the
house empty. Children have process groups of their own, so Ctrl-C reaches the supervisor only, which
stops them in reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from postroad.cli.log_file import LogFile
from postroad.cli.spawning import Spawn, Spawned, spawn_anew
from postroad.service import Service

__all__ = ["READY_MARK", "Child", "ChildPlan", "Supervisor"]

logger = logging.getLogger(__name__)

READY_MARK = "postroad-ready "
BACKOFF_FIRST_SECONDS = 0.5
BACKOFF_MOST_SECONDS = 30.0
# A child that ran this long had recovered: its next failure begins with the first backoff.
RECOVERED_AFTER_SECONDS = 60.0
READY_TIMEOUT_SECONDS = 120.0
STOP_TIMEOUT_SECONDS = 20.0
LAST_WORDS = 8
PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """What to run: the arguments of `postroad`, and the line that it reads first."""

    name: str
    arguments: Sequence[str]
    told: Mapping[str, Any] = field(default_factory=dict)
    # Children of one stage start and stop together, a higher stage after and before the others.
    stage: int = 0
    # Where its log lines go; without a file to our own.
    log_file: Path | None = None


class Child(Service):
    """One child process, started again whenever it ends."""

    def __init__(self, plan: ChildPlan, spawn: Spawn, on_change: Callable[[], None]) -> None:
        super().__init__(plan.name)
        self.plan = plan
        self._spawn = spawn
        self.state = "starting"
        self.since = datetime.now(UTC)
        self.restarts = 0
        self.error: str | None = None
        self.answer: dict[str, Any] = {}
        self._on_change = on_change
        self._process: Spawned | None = None
        self._words: list[str] = []

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def run(self) -> None:
        """Start, watch, start again, until stopped."""
        backoff = BACKOFF_FIRST_SECONDS
        while not self.stopping.is_set():
            self._become("starting")
            begun = asyncio.get_running_loop().time()
            try:
                code = await self._live()
            except OSError as failure:
                code, self._words = -1, [str(failure)]
            if self.stopping.is_set():
                break
            if asyncio.get_running_loop().time() - begun > RECOVERED_AFTER_SECONDS:
                backoff = BACKOFF_FIRST_SECONDS
            self.restarts += 1
            self.error = self._reason(code)
            self._become("waiting")
            logger.warning(
                "child_ended", extra={"child": self.name, "reason": self.error, "again_in": backoff}
            )
            await self.pause(backoff)
            backoff = min(backoff * 2, BACKOFF_MOST_SECONDS)
        self._become("stopped")

    async def _live(self) -> int:
        """Run one process from its start to its end; return its code."""
        self._words = []
        process = await self._spawn(self.plan.arguments)
        self._process = process
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(ConnectionError):
            process.stdin.write(json.dumps(dict(self.plan.told)).encode() + b"\n")
            await process.stdin.drain()
        hearing = asyncio.create_task(self._hear(process))
        reading = asyncio.create_task(self._read_errors(process))
        stopping = asyncio.create_task(self.stopping.wait())
        ended = asyncio.create_task(process.wait())
        late = asyncio.get_running_loop().call_later(
            READY_TIMEOUT_SECONDS, self._kill_late, process
        )
        try:
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._end(process)
        finally:
            late.cancel()
            stopping.cancel()
            # Nobody of its group may outlive it: pools of workers, shells of theirs.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await asyncio.gather(hearing, reading, ended)
        return process.returncode if process.returncode is not None else -1

    async def _hear(self, process: Spawned) -> None:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                # An overlong line, which is none of ours: the next one is read.
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text.startswith(READY_MARK):
                self.answer = json.loads(text.removeprefix(READY_MARK))
                self.error = None
                self._become("running")
                self.announce_ready()
            elif text:
                logger.debug("child_said", extra={"child": self.name, "said": text})

    async def _read_errors(self, process: Spawned) -> None:
        assert process.stderr is not None  # noqa: S101 - a pipe was asked for
        with LogFile(self.plan.log_file) as log:
            # Read by pieces: one overlong line must not stop the reading of all others.
            while piece := await process.stderr.read(PIECE_BYTES):
                lines = piece.decode(errors="replace").splitlines()
                self._words = [*self._words, *lines][-LAST_WORDS:]
                log.write(piece)

    def _kill_late(self, process: Spawned) -> None:
        if self.state == "starting" and process.returncode is None:
            self._words.append("not ready in time")
            process.kill()

    async def _end(self, process: Spawned) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                await process.wait()
        except TimeoutError:
            logger.warning("child_killed", extra={"child": self.name})
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def _reason(self, code: int) -> str:
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        last = next((word for word in reversed(self._words) if word.strip()), "")
        return f"exit code {code}" + (f": {last[:300]}" if last else "")

    def _become(self, state: str) -> None:
        self.state = state
        self.since = datetime.now(UTC)
        self._on_change()


class Supervisor:
    """All children: in order when they start, in reverse when they stop."""

    def __init__(self, spawn: Spawn = spawn_anew) -> None:
        self._spawn = spawn
        self.children: list[Child] = []
        self.changed = asyncio.Event()

    async def start(self, *plans: ChildPlan) -> None:
        """Start children and wait until they are ready, however often they have to be started."""
        for stage in sorted({plan.stage for plan in plans}):
            fresh = [
                Child(plan, self._spawn, self.changed.set) for plan in plans if plan.stage == stage
            ]
            self.children += fresh
            for child in fresh:
                await child.start()
            await asyncio.gather(*(child.ready() for child in fresh))

    async def stop(self) -> None:
        """Stop all, the highest stage first."""
        for stage in sorted({child.plan.stage for child in self.children}, reverse=True):
            leaving = [child for child in self.children if child.plan.stage == stage]
            await asyncio.gather(*(child.stop() for child in leaving), return_exceptions=True)
        self.children.clear()
