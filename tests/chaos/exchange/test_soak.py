"""Random kills of the server and of the ERP's instances: nothing is lost, nothing is doubled.

`make stress ARGS="-k under_random_kills"` runs it with 100,000 messages and 200 kills of a server.
The kills are distributed over the messages, so all of them happen under load. The figures are
printed and written to `.cache/soak/`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.cli.components import SCHEMAS
from postroad.testing import TestServer, wait_until
from tests.chaos.exchange.pair import Pair, SuspendedPair
from tests.chaos.exchange.soak_erp import GAPS, INSTALL, PAUSE_SECONDS
from tools.crash_table.world import ForkServer, World

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

IS_FULL = bool(os.environ.get("POSTROAD_STRESS"))
MESSAGES = int(os.environ.get("POSTROAD_SOAK", "100000" if IS_FULL else "1000"))
SENDERS = 8
DATABASES = ("sales", "stock", "books", "staff") if IS_FULL else ("sales", "stock")
# Of servers, and as many of instances of the ERP.
KILLS = 200 if IS_FULL else 4
# A server that is suspended is removed after some seconds.
SUSPENSIONS = KILLS // 5 if IS_FULL else 2
MAX_GAP_SECONDS = 10.0
FIGURES = Path(".cache/soak")
SETTINGS = {
    "file_threads": 8,
    "started_timeout": "2s",
    "ready_timeout": "2s",
    # What is handed out and not worked off because its instance was killed is no poison.
    "suspect_after": 100_000,
    "max_files": 500,
}


class Erps:
    """One instance for each database; whoever is killed has a successor."""

    def __init__(self, world: World, dsn: str) -> None:
        self._world = world
        self._dsn = dsn
        self._forks = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.exchange.soak_erp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with psycopg.connect(dsn) as connection:
            connection.execute(INSTALL.encode())
        self._pids: dict[str, int] = {}
        self._gaps = {
            database: world.root.with_name(f"{world.root.name}.{database}")
            for database in DATABASES
        }
        for file in self._gaps.values():
            file.write_bytes(GAPS.pack(time.monotonic(), 0.0))
        self.kills = 0
        # Each database is one's that only it serves: a recipient has one process at a time.
        self._tokens = dict(zip(DATABASES, world.add_clients("erp", len(DATABASES)), strict=True))
        for database in DATABASES:
            self._begin(database)

    def _begin(self, database: str) -> None:
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        wish = {
            "port": self._world.port,
            "token": self._tokens[database],
            "database": database,
            "dsn": self._dsn,
            "gaps": str(self._gaps[database]),
        }
        self._forks.stdin.write(json.dumps(wish) + "\n")
        self._forks.stdin.flush()
        self._pids[database] = int(self._forks.stdout.readline())

    def kill(self, database: str) -> None:
        """Kill an instance wherever it is, and let another one begin."""
        pid = self._pids[database]
        assert Path(f"/proc/{pid}").exists(), f"the instance on {database} ended by itself"
        os.kill(pid, signal.SIGKILL)
        self.kills += 1
        self._begin(database)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Look into the ERP's own database."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def longest_gap(self) -> float:
        """Return the longest time between two answers to the instances of one database."""
        return max(GAPS.unpack(file.read_bytes())[1] for file in self._gaps.values())

    def close(self) -> None:
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._forks.kill()
        self._forks.communicate()
        for file in self._gaps.values():
            file.unlink()


def _send_all(
    world: World, sender: int, sent: list[int], gaps: list[float], failures: list[BaseException]
) -> None:
    """Send one message after another; the longest call is the longest gap of this client."""
    try:
        for number in range(MESSAGES // SENDERS):
            begun = time.monotonic()
            id_ = f"s{sender}-{number}"
            database = DATABASES[number % len(DATABASES)]
            body = {"id": id_, "database": database, "body": {"n": number}}
            status, answer = world.call("phone", "POST", "/messages", body)
            assert status in (200, 201), answer
            gaps[sender] = max(gaps[sender], time.monotonic() - begun)
            sent[sender] += 1
    except BaseException as failure:  # noqa: BLE001 - told by the test
        failures.append(failure)
    finally:
        world.hang_up()


def _kill(
    world: World,
    erps: Erps,
    kills: int,
    sent: list[int],
    ended: threading.Event,
    failures: list[BaseException],
) -> None:
    """Kill servers and instances, each when a random share of the messages is sent."""
    chance = random.Random(11)
    deeds = [True, False] * kills
    chance.shuffle(deeds)
    # A tenth of the messages is left for a killer that is late.
    shares = sorted(chance.uniform(0, 0.9) for _ in deeds)
    try:
        for is_server, share in zip(deeds, shares, strict=True):
            while sum(sent) < share * MESSAGES and not ended.wait(PAUSE_SECONDS):
                pass
            if failures:
                return
            if is_server:
                world.kill()
                world.revive()
            else:
                erps.kill(chance.choice(DATABASES))
    except BaseException as failure:  # noqa: BLE001 - told by the test
        failures.append(failure)


@contextlib.contextmanager
def _stage(server: TestServer, kind: type[World]) -> Iterator[tuple[World, Erps]]:
    fork_server = ForkServer()
    with server.clone(*SCHEMAS) as journal, server.clone() as own, contextlib.ExitStack() as ends:
        ends.callback(fork_server.close)
        world = kind(journal, fork_server, **SETTINGS)
        ends.callback(world.close)
        world.start()
        erps = Erps(world, own)
        ends.callback(erps.close)
        yield world, erps


@pytest.mark.timeout(7200 if IS_FULL else 240)
@pytest.mark.parametrize("kind", [World, Pair, SuspendedPair])
def test_nothing_is_lost_and_nothing_doubled_under_random_kills(
    server: TestServer, capsys: pytest.CaptureFixture[str], kind: type[World]
) -> None:
    begun = time.monotonic()
    kills = SUSPENSIONS if kind is SuspendedPair else KILLS
    with _stage(server, kind) as (world, erps):
        failures: list[BaseException] = []
        sent, gaps = [0] * SENDERS, [0.0] * SENDERS
        senders = [
            threading.Thread(target=_send_all, args=(world, number, sent, gaps, failures))
            for number in range(SENDERS)
        ]
        ended = threading.Event()
        killer = threading.Thread(target=_kill, args=(world, erps, kills, sent, ended, failures))
        try:
            for thread in (*senders, killer):
                thread.start()
            for thread in senders:
                thread.join()
            kills_under_load = world.kills
            assert not failures, failures
            wait_until(
                lambda: erps.rows("select count(*) from effect")[0][0] >= MESSAGES,
                what="every message worked off",
                timeout_seconds=600,
            )
        finally:
            ended.set()
            killer.join()
        assert not failures, failures
        world.revive()
        wait_until(lambda: _is_settled(world), what="every process ended", timeout_seconds=60)
        ((count, different),) = erps.rows("select count(*), count(distinct id) from effect")
        lost, doubled = MESSAGES - different, count - different
        of_senders, of_erps = max(gaps), erps.longest_gap()
        figures = (
            f"{datetime.now(UTC):%Y-%m-%d}, {kind.__name__}: {MESSAGES} messages,"
            f" {world.kills} kills of a server ({kills_under_load} while messages were sent),"
            f" {erps.kills} of instances of the ERP, {time.monotonic() - begun:.0f} s: {lost} lost,"
            f" {doubled} doubled, longest gap {of_senders:.1f} s for a sender, {of_erps:.1f} s for"
            " the ERP"
        )
        FIGURES.mkdir(parents=True, exist_ok=True)
        (FIGURES / f"{kind.__name__}-{MESSAGES}.txt").write_text(f"{figures}\n")
        with capsys.disabled():
            print(f"\n{figures}")  # noqa: T201 - the figure is asked for
        done = world.rows("select count(*) from exchange.message where state = 'done'")[0][0]
        assert (lost, doubled, done) == (0, 0, MESSAGES)
        assert world.kills >= kills
        assert erps.kills == kills
        if IS_FULL:
            assert kills_under_load >= kills
            assert max(of_senders, of_erps) < MAX_GAP_SECONDS
        replies = world.rows("select id from exchange.message where state = 'waiting'")
        committed = erps.rows("select process from marker where outcome = 'COMMITTED'")
        assert sorted(replies) == sorted(committed)
        found = world.violations_of_folders()
        # Those of the last server that was killed are removed when its silence has lasted.
        assert [one for one in found if not (issubclass(kind, Pair) and "temporary" in one)] == []


def _is_settled(world: World) -> bool:
    rows = world.rows(
        "select not exists (select from exchange.process"
        " where state not in ('DONE', 'ABORTED', 'CANCELLED'))"
        " and not exists (select from exchange.message where state in ('queued', 'leased'))"
        " and not exists (select from exchange.move)"
    )
    return bool(rows[0][0])
