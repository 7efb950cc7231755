"""Publishes Celery tasks at a fixed rate and prints their latencies per window as JSON.

Arguments: number of windows, seconds per window, time at which they begin. A worker with two
processes runs beside it; the latency is from publishing until the task began.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness.histogram import Histogram
from benchmarks.peers.kill_celery import kill

INTERVAL_SECONDS = 0.05
PATIENCE_SECONDS = 60.0


def main(windows: int, window_seconds: float, began: float) -> None:
    with tempfile.NamedTemporaryFile(prefix="postroad-marks-") as marks:
        os.environ["BENCHMARK_MARKS"] = marks.name
        from benchmarks.peers.celery_app import stamp

        command = ["-m", "celery", "-A", "benchmarks.peers.celery_app", "worker", "-c", "2"]
        options = ["-l", "warning", "--without-gossip", "--without-mingle"]
        worker = subprocess.Popen(
            [sys.executable, "-W", "ignore", *command, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            posted = round(windows * window_seconds / INTERVAL_SECONDS)
            for number in range(posted):
                ahead = began + number * INTERVAL_SECONDS - time.time()
                if ahead > 0:
                    time.sleep(ahead)
                stamp.delay(number, time.time())
            deadline = time.time() + PATIENCE_SECONDS
            while len(_lines(marks.name)) < posted and time.time() < deadline:
                time.sleep(0.1)
            lines = _lines(marks.name)
        finally:
            kill(worker)
    histograms = [Histogram() for _ in range(windows)]
    for _, published, ran in lines:
        window = min(windows - 1, int((float(ran) - began) / window_seconds))
        histograms[window].add((float(ran) - float(published)) * 1000)
    numbers = [number for number, *_ in lines]
    result = {
        "posted": posted,
        "handled": len(set(numbers)),
        "is_twice": len(set(numbers)) != len(numbers),
        "windows": [
            {"messages": len(each), "p50_ms": p50, "p99_ms": p99}
            for each in histograms
            for p50, p99 in [each.percentiles(0.5, 0.99)]
        ],
    }
    print(json.dumps(result))


def _lines(name: str) -> list[list[str]]:
    return [line.split() for line in Path(name).read_text(encoding="ascii").splitlines()]


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
