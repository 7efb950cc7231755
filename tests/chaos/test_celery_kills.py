"""Celery workers killed at random while tasks run: none is lost."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from postroad.testing import wait_until
from tests.integration.broker.crew import CeleryProcess, lines, url_of
from tests.integration.broker.tasks import make_app

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

IS_FULL = bool(os.environ.get("POSTROAD_STRESS"))
TASKS = 10_000 if IS_FULL else 400
KILLS = 20 if IS_FULL else 2
WORKERS = 2


@pytest.mark.timeout(1200 if IS_FULL else 120)
def test_tasks_survive_workers_that_are_killed(database: str, tmp_path: Path) -> None:
    dice = random.Random(7)
    url = url_of(database)
    app = make_app(url)

    def hire() -> CeleryProcess:
        quiet = ("--loglevel=warning", "--without-mingle", "--without-gossip")
        name = f"--hostname=w{os.urandom(3).hex()}@test"
        return CeleryProcess(url, tmp_path, "worker", "--concurrency=2", name, *quiet)

    workers = [hire() for _ in range(WORKERS)]
    try:
        for number in range(TASKS):
            app.send_task("record", (str(number),), ignore_result=True)
        for kill in range(1, KILLS + 1):
            # Spread over the whole load, at a moment when everybody is at work.
            so_far = TASKS * kill // (KILLS + 2)
            wait_until(
                lambda so_far=so_far: len(lines(tmp_path, "records")) >= so_far,  # type: ignore[misc]
                what=f"{so_far} tasks done",
                timeout_seconds=120,
            )
            workers.pop(dice.randrange(len(workers))).kill()
            workers.append(hire())
        wait_until(
            lambda: len(set(lines(tmp_path, "records"))) == TASKS,
            what="every task done",
            timeout_seconds=120,
        )
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.kill()
        app.close()
