"""Kills a worker with -9 in the middle of a task; prints after how many seconds another has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_SECONDS = 60.0


def main() -> None:
    with tempfile.NamedTemporaryFile(prefix="postroad-marks-") as marks:
        os.environ["BENCHMARK_MARKS"] = marks.name
        from benchmarks.peers.celery_app import linger, tick

        def wait_for(count: int) -> None:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while Path(marks.name).stat().st_size < count:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{count} marks were waited for in vain")
                time.sleep(0.001)

        first = hire("first")
        second = None
        try:
            linger.delay()
            wait_for(1)
            # The first has its hands full, so this one is for the second.
            second = hire("second")
            tick.delay()
            wait_for(2)
            began = time.perf_counter()
            kill(first)
            wait_for(3)
            print(time.perf_counter() - began)
        finally:
            for worker in (first, second):
                if worker is not None and worker.poll() is None:
                    kill(worker)


def hire(name: str) -> subprocess.Popen[bytes]:
    command = ["-m", "celery", "-A", "benchmarks.peers.celery_app", "worker", "-c", "1"]
    options = ["--prefetch-multiplier=1", f"--hostname={name}@test", "-l", "warning"]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", *command, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(worker: subprocess.Popen[bytes]) -> None:
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text(encoding="ascii")
    for pid in (worker.pid, *map(int, children.split())):
        os.kill(pid, signal.SIGKILL)
    worker.wait()


if __name__ == "__main__":
    main()
