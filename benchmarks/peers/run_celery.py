"""Runs a worker on one broker and prints tasks a second and idle pick-up times as JSON.

Argument: number of tasks. The clock runs from the first publish to the last task done; where that
takes too long, to the end of patience, and what was done by then is what counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers.kill_celery import kill

WARM_TASKS = 20
IDLE_TASKS = 20
IDLE_SECONDS = 0.1
PATIENCE_SECONDS = 90.0
# Long enough for a rate; a slow broker need not finish.
MEASURE_SECONDS = 20.0


def main(tasks: int) -> None:
    with tempfile.NamedTemporaryFile(prefix="postroad-marks-") as marks:
        os.environ["BENCHMARK_MARKS"] = marks.name
        from benchmarks.peers.celery_app import tick

        def done_by(deadline: float, count: int) -> int:
            while (done := Path(marks.name).stat().st_size) < count:
                if time.perf_counter() > deadline:
                    break
                time.sleep(0.0005)
            return done

        def wait_for(count: int) -> None:
            done = done_by(time.perf_counter() + PATIENCE_SECONDS, count)
            if done < count:
                raise SystemExit(f"only {done} of {count} tasks ran")

        command = ["-m", "celery", "-A", "benchmarks.peers.celery_app", "worker", "-c", "2"]
        options = ["-l", "warning", "--without-gossip", "--without-mingle"]
        worker = subprocess.Popen(
            [sys.executable, "-W", "ignore", *command, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            done = WARM_TASKS
            for _ in range(WARM_TASKS):
                tick.delay()
            wait_for(done)
            pickups = []
            for _ in range(IDLE_TASKS):
                time.sleep(IDLE_SECONDS)
                began = time.perf_counter()
                tick.delay()
                done += 1
                wait_for(done)
                pickups.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            for _ in range(tasks):
                tick.delay()
            published = time.perf_counter() - began
            ran = done_by(began + MEASURE_SECONDS, done + tasks) - done
            took = time.perf_counter() - began
        finally:
            # The queue is of this run alone: nobody waits for what is left in it.
            kill(worker)
    result = {
        "rate": ran / took,
        "tasks": ran,
        "publish": tasks / published,
        "pickups": pickups,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]))
