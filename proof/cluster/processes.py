"""Processes of a cluster: started apart from us, found again by id and start time.

A process id alone may belong to another process by the time it is used; with the start time that
the kernel keeps, it is the process that was started here or none.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Process", "children_of", "service_user", "start_time", "wait_for"]

# A process that SIGKILL has not ended by then is sent it again.
PATIENCE_SECONDS = 5.0


def start_time(pid: int) -> int | None:
    """Return when the kernel started a process, in ticks; None when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def children_of(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    found = [pid]
    for each in found:
        for thread in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(word) for word in thread.read_text(encoding="utf-8").split()]
    return found


def service_user() -> str | None:
    """Return the user that runs the servers: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    pwd.getpwnam("postgres")
    return "postgres"


def wait_for(condition: object, what: str, timeout_seconds: float = 60.0) -> None:
    """Wait until a condition holds; errors of connections count as not yet."""
    assert callable(condition)
    deadline = time.monotonic() + timeout_seconds
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (OSError, ValueError) as failure:
            last = failure
        time.sleep(0.2)
    raise TimeoutError(f"{what}: not after {timeout_seconds:.0f} s ({last})")


@dataclass
class Process:
    """One server process: how it is started, and which one runs now."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: str
    pid: int | None = None
    started: int | None = None
    # Words before the command: the namespace it runs in.
    inside: list[str] = field(default_factory=list)
    # A fault keeps it down: whoever starts what has ended leaves it alone.
    is_held: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the process that was started last still runs."""
        return self.pid is not None and start_time(self.pid) == self.started

    def start(self) -> None:
        """Start it in a session of its own unless it runs or is held down."""
        if self.is_running or self.is_held:
            return
        user = service_user()
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        with Path(self.log).open("ab") as log:
            # A session of its own: the end of this program is not theirs.
            child = subprocess.Popen(
                [*self.inside, *drop, *self.command],
                env=self.environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid, self.started = child.pid, start_time(child.pid)
        _children[child.pid] = child

    def send(self, which: signal.Signals) -> bool:
        """Send a signal to this process alone; false when it has ended before."""
        if not self.is_running or self.pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, which)
        return True

    def kill(self) -> None:
        """End it and its process group with SIGKILL, sent again while it does not end."""
        # This one: another thread may start the next as soon as it has ended.
        pid, started = self.pid, self.started
        if not self.is_running or pid is None:
            return
        child = _children.pop(pid, None)

        def has_ended() -> bool:
            if start_time(pid) == started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                if child is not None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(PATIENCE_SECONDS)
            return start_time(pid) != started

        wait_for(has_ended, f"the end of {self.name}")


# Children of this program, kept so that they are reaped; those of a former one are init's.
_children: dict[int, subprocess.Popen[bytes]] = {}
