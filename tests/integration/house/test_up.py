from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from postroad.postgres import EmbeddedServer
from postroad.postgres.postmaster import read_postmaster
from postroad.testing import wait_until
from postroad.testing.run_folder import run_folder

Start = Callable[..., subprocess.Popen[str]]

CONSUMED = re.compile(r"consumer=default .*consumed/s=([1-9]\d*)")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = run_folder() / f"up-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o755)
    (folder / "bin_folder").write_text("", encoding="utf-8")
    yield folder
    EmbeddedServer(folder).halt()


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start_one(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", "from postroad.cli import run; run()", "up", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "POSTROAD_DATA_FOLDER": str(folder)},
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def _wait_for_consumption(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if CONSUMED.search(line):
            return
    pytest.fail(f"ended without having consumed anything: {process.communicate()[1]}")


def test_messages_move_until_the_interrupt_and_everything_stops(folder: Path, start: Start) -> None:
    process = start()
    _wait_for_consumption(process)
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=40)
    assert process.returncode == 0, complaints
    assert said.endswith("stopped\n")
    assert "Traceback" not in complaints
    assert not EmbeddedServer(folder).is_running


def test_a_bounded_run_ends_by_itself(start: Start) -> None:
    process = start("--seconds", "1")
    said, complaints = process.communicate(timeout=40)
    assert process.returncode == 0, complaints
    assert "sample_orders" in said


@pytest.mark.chaos
def test_messages_move_again_after_the_server_was_killed(folder: Path, start: Start) -> None:
    process = start()
    _wait_for_consumption(process)
    server = EmbeddedServer(folder)
    killed = read_postmaster(server.cluster.data)
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)

    def revived() -> bool:
        running = read_postmaster(server.cluster.data)
        return running is not None and running.is_ready and running.pid != killed.pid

    wait_until(revived, what="the server runs again")
    with server, psycopg.connect(server.dsn(), autocommit=True) as connection:

        def look(query: LiteralString) -> int:
            row = connection.execute(query).fetchone()
            return row[0] if row else 0

        position = "select (mbus.positions(array['sample_orders']))[1]"
        before = look(position)
        wait_until(lambda: look(position) > before, what="messages are posted again")
        depth = "select sum(depth)::bigint from mbus.status where queue = 'sample_orders'"
        wait_until(lambda: look(depth) == 0, what="messages are consumed again")
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=40)
    assert process.returncode == 0, complaints
