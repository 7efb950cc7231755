"""Real workers for the tests: processes that are started, asked and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from postroad.testing import wait_until

ROOT = Path(__file__).parents[3]
START_SECONDS = 45.0
# The leased messages of all queues; due_at is when a lease ends.
LEASED = (
    "mbus.consumers c cross join lateral mbus.browse(c.queue, c.consumer, 'leased', amt => 1000) l"
)


def url_of(dsn: str) -> str:
    """Write a DSN of a test database as the URL that Celery is given."""
    part = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    host, port = part["host"], part["port"]
    return f"mbus://{part['user']}@/{part['dbname']}?host={host}&port={port}"


class CeleryProcess:
    """One `celery …` process with the application of the tests."""

    def __init__(self, url: str, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.log = folder / f"{arguments[0]}-{os.urandom(3).hex()}.log"
        environment = {
            **os.environ,
            "BROKER_TEST_URL": url,
            "BROKER_TEST_FOLDER": str(folder),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "FLOWER_UNAUTHENTICATED_API": "true",
            "PYTHONWARNINGS": "ignore",
        }
        command = [sys.executable, "-m", "celery", "-A", "tests.integration.broker.tasks"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *arguments], cwd=ROOT, env=environment, stdout=log, stderr=log
            )

    def wait_for(self, words: str) -> None:
        """Wait until the process has said so."""

        def said() -> bool:
            text = self.log.read_text(encoding="utf-8", errors="replace")
            if words not in text and self.process.poll() is not None:
                raise AssertionError(f"the process has ended: {text[-3000:]}")
            return words in text

        wait_until(said, what=f"{words!r} in {self.log.name}", timeout_seconds=START_SECONDS)

    def kill(self) -> None:
        """End it with kill -9, and its pool with it, as a power cut would."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = [int(pid) for pid in children.read_text(encoding="ascii").split()]
        for pid in (self.process.pid, *pids):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it in order: a warm shutdown."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


Hire = Callable[..., CeleryProcess]


def lines(folder: Path, name: str) -> list[str]:
    """Give what tasks have noted."""
    path = folder / name
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
