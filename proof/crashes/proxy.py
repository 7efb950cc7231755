"""Kills a process at its n-th message to the database: before it arrives, or after it was answered.

Every statement and every commit of a program is one message of PostgreSQL's protocol, whichever
driver sends it, so a proxy sees each of its transaction boundaries.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from proof.faults.proxy import Cut, CuttingProxy, Side

__all__ = ["KillingProxy"]


class KillingProxy(CuttingProxy):
    """Counts the messages of all connections of one process."""

    def __init__(self, socket: str, at: int | None = None, side: Side = "request") -> None:
        super().__init__("127.0.0.1", socket, self._kill)
        self._at = at
        self._side = side
        self.messages = 0
        self.pid: int | None = None
        self.has_killed = False

    def take(self, _: bytes) -> Cut | None:
        """Count a message; return the cut when it is the one."""
        self.messages += 1
        return Cut(self._side) if self.messages == self._at else None

    def _kill(self) -> None:
        # The process waits for the answer to this message, so it is there.
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.has_killed = True
