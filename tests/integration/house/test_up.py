from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.postgres import EmbeddedServer
from postroad.postgres.postmaster import read_postmaster
from postroad.testing.run_folder import run_folder

CONSUMED = re.compile(r"consumer=default .*consumed/s=([1-9]\d*)")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = run_folder() / f"up-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o755)
    (folder / "bin_folder").write_text("", encoding="utf-8")
    yield folder
    EmbeddedServer(folder).halt()


def _start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from postroad.cli import run; run()", "up", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "POSTROAD_DATA_FOLDER": str(folder)},
    )


def _wait_for_consumption(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if CONSUMED.search(line):
            return
    pytest.fail(f"ended without having consumed anything: {process.communicate()[1]}")


def test_messages_move_until_the_interrupt_and_everything_stops(folder: Path) -> None:
    process = _start(folder)
    _wait_for_consumption(process)
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=40)
    assert process.returncode == 0, complaints
    assert said.endswith("stopped\n")
    assert "Traceback" not in complaints
    assert not EmbeddedServer(folder).is_running


def test_a_bounded_run_ends_by_itself(folder: Path) -> None:
    process = _start(folder, "--seconds", "1")
    said, complaints = process.communicate(timeout=40)
    assert process.returncode == 0, complaints
    assert "sample_orders" in said


@pytest.mark.chaos
def test_messages_move_again_after_the_server_was_killed(folder: Path) -> None:
    process = _start(folder)
    _wait_for_consumption(process)
    postmaster = read_postmaster(EmbeddedServer(folder).cluster.data)
    assert postmaster is not None
    os.kill(postmaster.pid, signal.SIGKILL)
    assert process.stdout is not None
    for line in process.stdout:
        if "is away" in line or "consumed/s=0" in line:
            break
    _wait_for_consumption(process)
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=40)
    assert process.returncode == 0, complaints
