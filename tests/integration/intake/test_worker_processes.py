"""`postroad intake worker` as processes: several on one host, none outlives its parent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from postroad.testing import wait_until
from postroad.vault import new_key
from tests.integration.broker.crew import url_of
from tests.integration.intake.crew import Crew

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SECONDS = 60


@pytest.fixture
def crew(database: str, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew.of(tmp_path, database, new_key(), None)
    yield crew
    print(crew.logs()[-5000:])  # noqa: T201 - shown when the test fails
    crew.close()


def nodes(app: Celery) -> list[str]:
    """Return the names of the workers that answer."""
    return sorted(app.control.inspect(timeout=2).ping() or {})


def processes(session: int) -> list[int]:
    """Return the running processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def test_workers_of_one_host_have_names_of_their_own_and_leave_nothing_behind(
    database: str, crew: Crew
) -> None:
    with Celery(broker=url_of(database)) as app:
        for name in ("first", "second"):
            crew.start(name, "worker", "--concurrency", "1", "--beat")
        wait_until(lambda: len(nodes(app)) == 4, what="four nodes", timeout_seconds=SECONDS)
        first, second = crew.processes["first"], crew.processes["second"]
        # Transfers and control, the scheduler, and a pool of three.
        wait_until(
            lambda: len(processes(first.pid)) >= 6, what="six processes", timeout_seconds=SECONDS
        )
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        wait_until(lambda: not processes(first.pid), what="all ended", timeout_seconds=SECONDS)
        assert len(nodes(app)) == 2
        # Without its other half a worker would look alive and do half of the work.
        [control] = [
            int(pid)
            for pid in Path(f"/proc/{second.pid}/task/{second.pid}/children").read_text().split()
            if Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
        os.kill(control, signal.SIGKILL)
        assert second.wait(SECONDS) == 1
        wait_until(lambda: not processes(second.pid), what="all ended", timeout_seconds=SECONDS)


def test_a_worker_that_is_reported_to_stop_stops_in_order(database: str, crew: Crew) -> None:
    with Celery(broker=url_of(database)) as app:
        crew.start("worker", "worker", "--concurrency", "1")
        wait_until(lambda: len(nodes(app)) == 2, what="two nodes", timeout_seconds=SECONDS)
        worker = crew.processes["worker"]
        worker.terminate()
        assert worker.wait(SECONDS) == 0
        assert not processes(worker.pid)


def test_a_scheduler_that_fails_ends_with_an_error(crew: Crew) -> None:
    # A folder in the place of its schedule file, whose suffix depends on the dbm module.
    for suffix in ("", ".db", ".dat", ".dir", ".bak"):
        (crew.folder / f"intake-beat{suffix}").mkdir()
    crew.start("beat", "beat")
    assert crew.processes["beat"].wait(SECONDS) == 1
