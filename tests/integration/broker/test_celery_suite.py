"""The tool that runs Celery's own tests, with small suites in the place of Celery's."""

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
from tests.fixtures.rabbitmq import SERVER
from tests.integration.broker.crew import ROOT
from tests.programs import refuse_missing
from tools.celery_suite import marker

FLAGS = """\
import builtins, os
import pytest

def test_sets_a_flag():
    assert not hasattr(builtins, "flag_of_this_process")
    builtins.flag_of_this_process = True

class TestGroup:
    @pytest.mark.parametrize("kind", ["chord"])
    def test_needs_rabbitmq(self, kind):
        assert os.environ["TEST_BROKER"].startswith("amqp")

@pytest.mark.skip
def test_needs_redis():
    raise AssertionError

@pytest.mark.xfail
def test_fails_everywhere():
    raise AssertionError
"""
WAITING = """\
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


@pytest.fixture
def suite(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the tests of a suite that counts as downloaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(temporary))
    celery = version("celery")
    complete = marker(tmp_path, celery)
    tests = complete.parent / f"celery-{celery}" / "t" / "integration"
    tests.mkdir(parents=True)
    complete.touch()
    return tests


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_file_has_a_process_and_failures_are_compared_with_rabbitmq(suite: Path) -> None:
    if not SERVER.exists():
        refuse_missing("no RabbitMQ of the system; install it with: make servers")
    for name in ("test_one.py", "test_two.py"):
        (suite / name).write_text(FLAGS, encoding="utf-8")
    files = ["t/integration/test_one.py", "t/integration/test_two.py"]
    command = [sys.executable, "-m", "tools.celery_suite", "--compare", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        f"Celery {version('celery')} on mbus: 2 passed, 2 failed, 2 skipped, 2 xfailed",
        *(
            f"failed: {file}::TestGroup::test_needs_rabbitmq[chord] (on rabbitmq: passed)"
            for file in files
        ),
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_run_leaves_no_process_behind(
    tmp_path: Path, temporary: Path, suite: Path
) -> None:
    begun = tmp_path / "begun"
    (suite / "test_waiting.py").write_text(WAITING.format(begun=str(begun)), encoding="utf-8")
    command = [sys.executable, "-m", "tools.celery_suite", "t/integration/test_waiting.py"]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
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
