"""pgbench of the embedded package: rates of the server, without Python in the way."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

__all__ = ["Pgbench"]

_PROCESSED = re.compile(r"number of transactions actually processed: (\d+)")
_FAILED = re.compile(r"number of failed transactions: (\d+)")
_TPS = re.compile(r"tps = ([\d.]+) \(without initial connection time\)")


@dataclass(frozen=True, slots=True)
class Pgbench:
    """Runs a script with several clients and tells how many transactions a second it made."""

    program: str
    dsn: str

    def for_seconds(self, script: str, *, clients: int, seconds: int, **variables: int) -> float:
        """Run for a time; return transactions a second."""
        return self._run(script, clients, ["-T", str(seconds)], variables)

    def times(self, script: str, *, clients: int, each: int, **variables: int) -> float:
        """Run a number of times per client; return transactions a second."""
        return self._run(script, clients, ["-t", str(each)], variables)

    def _run(
        self, script: str, clients: int, length: list[str], variables: dict[str, int]
    ) -> float:
        where = conninfo_to_dict(self.dsn)
        environment = {
            **os.environ,
            "PGHOST": str(where["host"]),
            "PGPORT": str(where["port"]),
            "PGUSER": str(where["user"]),
            "PGDATABASE": str(where["dbname"]),
        }
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "script.sql"
            file.write_text(script, encoding="utf-8")
            command = [
                self.program, "-n", "-M", "prepared", "-c", str(clients),
                "-j", str(min(clients, 2)), *length, "-f", str(file),
                *(f"--define={name}={value}" for name, value in variables.items()),
            ]  # fmt: skip
            started = time.monotonic()
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            took = time.monotonic() - started
        return _read(done, took)


def _read(done: subprocess.CompletedProcess[str], took: float) -> float:
    processed, failed = _PROCESSED.search(done.stdout), _FAILED.search(done.stdout)
    rate = _TPS.search(done.stdout)
    if done.returncode != 0 or processed is None or rate is None:
        raise RuntimeError(f"pgbench failed: {done.stderr.strip()[-2000:]}")
    if failed is not None and int(failed[1]) > 0:
        raise RuntimeError(f"{failed[1]} transactions failed in {took:.1f} s")
    return float(rate[1])
