"""`exchange serve --workers`: several processes on one port, replaced without a refused call."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from postroad.cli import command_service
from postroad.cli.context import Application
from postroad.cli.parts import PartContext
from postroad.exchange import operations
from postroad.postgres import run_blocking
from postroad.testing import wait_until_async


@dataclass
class Load:
    """A sender that repeats a call whose connection was closed, as the documentation asks for."""

    url: str
    token: str
    name: str
    sent: int = 0
    refused: int = 0
    is_done: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30) as http:
            while not self.is_done.is_set():
                body = {"id": f"{self.name}-{self.sent}", "database": "sales", "body": self.sent}
                try:
                    answer = await http.post("/exchange/v1/messages", json=body)
                except httpx.ConnectError:
                    self.refused += 1
                except httpx.TransportError:
                    continue
                else:
                    assert answer.status_code in (200, 201), answer.text
                    self.sent += 1
                    # The machine has to start processes, too.
                    await asyncio.sleep(0.02)


@dataclass
class Served:
    """The command, and what the journal has of its workers."""

    dsn: str
    url: str
    process: asyncio.subprocess.Process

    def rows(self, statement: str) -> list[tuple[str]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement).fetchall()

    def pids(self) -> set[int]:
        rows = self.rows("select holder from exchange.member")
        return {int(holder.rpartition(":")[2]) for (holder,) in rows}

    async def until_replaced(self, old: set[int]) -> None:
        async def is_replaced() -> bool:
            pids = self.pids()
            return len(pids) == 2 and not pids & old

        await wait_until_async(is_replaced, what="other workers", timeout_seconds=100)


@pytest.fixture
async def served(database: str, tmp_path: Path) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "postroad", "exchange", "serve", "--workers", "2", "--port", "0"),
        *("--root", str(tmp_path / "root"), "--json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "POSTROAD_DATABASE_URL": database},
    )
    try:
        assert process.stdout is not None
        url = json.loads(await process.stdout.readline())["url"]
        yield Served(database, url, process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_a_worker_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    monkeypatch.setattr(command_service, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(command_service, "ENTRY", deaf)
    with socket.socket() as listener:
        context = PartContext(Application(), "")
        worker = command_service.CommandService("deaf", context, [], listener=listener)
        async with worker:
            assert worker.pid is not None
            started = worker.pid
            os.kill(started, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_workers_are_replaced_and_killed_under_load(served: Served) -> None:
    names = [f"phone-{number}" for number in range(4)]
    made = [
        run_blocking(served.dsn, operations.add_client, name, databases=["sales"]) for name in names
    ]
    loads = [Load(served.url, one.token, name) for one, name in zip(made, names, strict=True)]
    async with asyncio.TaskGroup() as group:
        for load in loads:
            group.create_task(load.run())
        old = served.pids()
        assert len(old) == 2
        served.process.send_signal(signal.SIGHUP)
        await served.until_replaced(old)
        killed = served.pids().pop()
        os.kill(killed, signal.SIGKILL)
        await served.until_replaced({killed})
        for load in loads:
            load.is_done.set()
    assert [load.refused for load in loads] == [0, 0, 0, 0]
    stored = [id_ for (id_,) in served.rows("select id from exchange.message")]
    expected = {f"{load.name}-{number}" for load in loads for number in range(load.sent)}
    # A message may be stored whose call the end of the test has cut off.
    assert expected <= set(stored)
    assert len(stored) == len(set(stored)) <= len(expected) + len(loads)
    served.process.terminate()
    assert await served.process.wait() == 0
    assert served.pids() == set()
