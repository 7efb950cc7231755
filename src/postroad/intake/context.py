"""The context of the intake's Celery tasks: settings, keys, and an event loop for coroutines.

Each thread of a worker process has one event loop for its lifetime, so that connections are kept
between tasks. Everything is created after the fork, by the first task.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from postroad.intake.engine import Engine, open_engine
from postroad.intake.notice import create_queues
from postroad.settings.intake import IntakeSettings
from postroad.vault import Vault

T = TypeVar("T")


@dataclass(slots=True)
class IntakeContext:
    """Settings and keys; `run` executes a step with the engine of this thread."""

    dsn: str = field(repr=False)
    settings: IntakeSettings = field(repr=False)
    vault: Vault = field(repr=False)
    data_folder: Path
    is_pooled: bool = False
    _local: threading.local = field(default_factory=threading.local, repr=False)

    def run(self, step: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Run a step to its end on the loop of this thread."""
        local: Any = self._local
        if getattr(local, "pid", None) != os.getpid():
            local.runner, local.engine = asyncio.Runner(), self.open_engine()
            local.pid = os.getpid()
            local.runner.run(create_queues(local.engine))
        result: T = local.runner.run(step(local.engine))
        return result

    def open_engine(self, owner: str | None = None) -> Engine:
        """Make an engine for the running event loop."""
        given = self.dsn, self.settings, self.vault, self.data_folder, owner
        return open_engine(*given, is_pooled=self.is_pooled)

    def close(self) -> None:
        """Close the connections and the loop of this thread."""
        if getattr(self._local, "pid", None) == os.getpid():
            runner, engine = self._local.runner, self._local.engine
            runner.run(engine.close())
            runner.close()
            self._local.pid = None
