"""The log of a service: limited, its own, and never in its way."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from postroad.cli import command_service
from postroad.cli.context import Application
from postroad.cli.log_file import LogFile, ServiceLogStream, log_to
from postroad.cli.parts import PartContext
from postroad.cli.supervisor import ServicePlan, Supervised
from postroad.testing import wait_until


def test_a_log_that_has_grown_makes_room_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "web.log"
    with closing(LogFile(path, max_bytes=100)) as log:
        for number in range(25):
            log.write(f"line {number:03}\n".encode())
    assert path.read_text(encoding="utf-8").endswith("line 024\n")
    assert path.stat().st_size <= 100
    old = path.with_suffix(".old.log")
    assert old.read_text(encoding="utf-8").splitlines()[-1] == "line 021"


def test_what_is_there_already_counts(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_bytes(b"x" * 99)
    with closing(LogFile(path, max_bytes=100)) as log:
        log.write(b"after\n")
    assert path.read_bytes() == b"after\n"


def test_what_could_not_be_written_is_told_when_it_can_again(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.symlink_to("/dev/full")
    with closing(LogFile(path)) as log:
        log.write(b"lost\n")
        log.write(b"lost too\n")
        path.unlink()
        log.close()
        log.write(b"kept\n")
    assert path.read_text(encoding="utf-8").splitlines() == [
        "… 14 bytes of this log could not be written",
        "kept",
    ]


def test_each_task_writes_to_its_own_log(tmp_path: Path) -> None:
    stream = ServiceLogStream()

    async def service(name: str) -> None:
        with closing(LogFile(tmp_path / f"{name}.log")) as log:
            log_to(log)
            await asyncio.create_task(asyncio.to_thread(stream.write, f"{name} says\n"))

    async def both() -> None:
        await asyncio.gather(service("web"), service("exchange"))

    asyncio.run(both())
    for name in ("web", "exchange"):
        assert (tmp_path / f"{name}.log").read_text(encoding="utf-8") == f"{name} says\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
async def test_a_full_disk_does_not_hold_a_service_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    # More than a pipe holds, then the sign that it got past that.
    chatter = f"""
import pathlib, sys, time
sys.stderr.write("talk " * 200_000)
pathlib.Path({str(done)!r}).touch()
time.sleep(600)
"""
    monkeypatch.setattr(command_service, "ENTRY", chatter)
    context = PartContext(Application(), "")
    plan = ServicePlan(
        "talker",
        lambda: command_service.CommandService("talker", context, []),
        log_file=Path("/dev/full"),
    )
    async with Supervised(plan, on_change=lambda: None) as talker:
        await asyncio.to_thread(wait_until, done.exists, what="it got past a full pipe")
        assert (talker.state, talker.restarts) == ("running", 0)
        assert talker.pid not in (None, os.getpid())
