"""Real processes of the intake for tests: workers and a beat that may be killed at any moment."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.s3 import ACCESS_KEY, SECRET_KEY, S3Server

__all__ = ["Crew"]

_DIE_WITH_PARENT = 1


@dataclass
class Crew:
    """Processes by name, their environment, and what they said."""

    folder: Path
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, dsn: str, key: str, s3: S3Server | None, **settings: str) -> Crew:
        """Make the environment; the store is a bucket, or a folder without an S3 server."""
        folder.mkdir(parents=True, exist_ok=True)
        given = {"discover_interval": "1s", "reconcile_interval": "1s", "lease": "3s"}
        given |= {"store": str(folder / "store")} if s3 is None else {
            "store": f"s3://{s3.new_bucket()}",
            "s3_endpoint": s3.endpoint,
            "s3_access_key": ACCESS_KEY,
            "s3_secret_key": SECRET_KEY,
        }  # fmt: skip
        given |= settings
        return cls(
            folder,
            {
                **{name: value for name, value in os.environ.items() if "POSTROAD" not in name},
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "POSTROAD_DATABASE_URL": dsn,
                "POSTROAD_DATA_FOLDER": str(folder),
                "POSTROAD_VAULT__KEYS": key,
                "POSTROAD_LOGS__LEVEL": "warning",
                **{f"POSTROAD_INTAKE__{name.upper()}": one for name, one in given.items()},
            },
        )

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a command of the intake."""
        return [sys.executable, "-c", "from postroad.cli import run; run()", "intake", *arguments]

    def start(self, name: str, *arguments: str) -> None:
        """Start a process unless it runs."""
        if name in self.processes and self.processes[name].poll() is None:
            return
        with (self.folder / f"{name}.log").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                self.command(*arguments),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL),
            )

    def kill(self, name: str) -> None:
        """End a process and its children at once."""
        process = self.processes[name]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def logs(self) -> str:
        """Return what all of them said."""
        return "\n".join(
            path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log"))
        )

    def close(self) -> None:
        """End all."""
        for name in self.processes:
            self.kill(name)
