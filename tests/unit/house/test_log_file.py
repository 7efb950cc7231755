"""The log of a service: small, and never in its way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from postroad.cli.log_file import LogFile
from postroad.cli.spawning import Spawned
from postroad.cli.supervisor import READY_MARK, Child, ChildPlan


def test_a_log_that_has_grown_makes_room_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "web.log"
    with LogFile(path, bytes_most=100) as log:
        for number in range(25):
            log.write(f"line {number:03}\n".encode())
    assert path.read_text(encoding="utf-8").endswith("line 024\n")
    assert path.stat().st_size <= 100
    old = path.with_suffix(".old.log")
    assert old.read_text(encoding="utf-8").splitlines()[-1] == "line 021"


def test_what_is_there_already_counts(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_bytes(b"x" * 99)
    with LogFile(path, bytes_most=100) as log:
        log.write(b"after\n")
    assert path.read_bytes() == b"after\n"


def test_what_could_not_be_written_is_told_when_it_can_again(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.symlink_to("/dev/full")
    with LogFile(path) as log:
        log.write(b"lost\n")
        log.write(b"lost too\n")
        path.unlink()
        log._close()
        log.write(b"kept\n")
    assert path.read_text(encoding="utf-8").splitlines() == [
        "… 14 bytes of this log could not be written",
        "kept",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
async def test_a_full_disk_does_not_hold_a_service_back() -> None:
    # More than a pipe holds, then the sign that it got past that.
    chatter = f"""
import sys
sys.stderr.write("talk " * 200_000)
print({READY_MARK!r} + "{{}}", flush=True)
sys.stdin.read()
"""

    async def spawn(_: Sequence[str]) -> Spawned:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", chatter, stdin=-1, stdout=-1, stderr=-1, start_new_session=True
        )

    plan = ChildPlan("talker", [], log_file=Path("/dev/full"))
    child = Child(plan, spawn, on_change=lambda: None)
    async with child:
        assert child.state == "running"
        assert child.restarts == 0
