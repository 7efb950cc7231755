"""The tool that runs Celery's own tests, with a suite of one test in the place of Celery's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from postroad.testing import wait_until
from tests.integration.broker.crew import ROOT

SUITE = """\
import os, signal, time
from pathlib import Path

def test_waits_for_ever():
    # Stands for a process of Celery's pool.
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    else:
        Path({begun!r}).write_text(f"{{os.getpid()}} {{child}}")
    while True:
        time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def temporary() -> Iterator[Path]:
    # Not tmp_path, whose parent the user of PostgreSQL may not enter.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_run_leaves_no_process_behind(tmp_path: Path, temporary: Path) -> None:
    begun = tmp_path / "begun"
    celery = version("celery")
    suite = tmp_path / "postroad" / f"celery-suite-{celery}"
    tests = suite / f"celery-{celery}" / "t" / "integration"
    tests.mkdir(parents=True)
    (suite / "complete").touch()
    (tests / "test_waiting.py").write_text(SUITE.format(begun=str(begun)), encoding="utf-8")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "tools.celery_suite", "t/integration/test_waiting.py"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    pids = [process.pid]
    try:
        wait_until(
            lambda: begun.exists() and len(begun.read_text().split()) == 2,
            what="the test begun",
            timeout_seconds=180,
        )
        [postmaster] = temporary.rglob("postmaster.pid")
        pids += [int(postmaster.read_text().split()[0]), *map(int, begun.read_text().split())]
        assert all(map(is_running, pids))
        process.terminate()
        status = process.wait(60)
        assert list(filter(is_running, pids)) == []
        assert status == 128 + signal.SIGTERM
        assert list(temporary.iterdir()) == []
    finally:
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGQUIT)
        process.wait()
