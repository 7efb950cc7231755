"""Random kills of server, client and PostgreSQL; at the end nothing is lost and nothing doubled."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.cli.rooms import SCHEMAS
from postroad.testing import TestServer, wait_until
from tools.crash_table.world import Nursery, World

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

MESSAGES = int(
    os.environ.get("POSTROAD_SOAK", "100000" if os.environ.get("POSTROAD_STRESS") else "200")
)
BATCH = 500
SENDERS = 4


@pytest.fixture(params=[None], ids=["embedded"])
def server_bin_folder(request: pytest.FixtureRequest) -> Path | None:
    return request.param


class Erp:
    """An ERP whose own database is PostgreSQL: effect and marker commit together.

    It dies at random between any two steps; its successor asks the marker by tombstone.
    """

    def __init__(self, world: World, dsn: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._connection = psycopg.connect(dsn)
        self._connection.execute("create table effect (id text, at timestamptz default now())")
        self._connection.execute("create table marker (process text primary key, outcome text)")
        self._connection.commit()
        self._attempt = 0
        self.deaths = 0

    def _may_die(self) -> None:
        if self._random.random() < 0.04:
            raise InterruptedError

    def resolve(self, process: str) -> str:
        """Insert the tombstone, or read what was there before it."""
        with self._connection.transaction():
            self._connection.execute(
                "insert into marker values (%s, 'ABORTED') on conflict do nothing", (process,)
            )
            row = self._connection.execute(
                "select outcome from marker where process = %s", (process,)
            ).fetchone()
        assert row is not None
        return str(row[0])

    def work(self) -> int:
        """One process from API_1 to API_4; returns how many messages it handled."""
        try:
            return self._work()
        except InterruptedError:
            self._connection.rollback()
            self.deaths += 1
            return 0

    def _work(self) -> int:
        world = self._world
        self._attempt += 1
        wish: dict[str, Any] = {"database": "sales", "attempt": f"a{self._attempt}"}
        _, answer = world.call("erp", "POST", "/processes", wish)
        if answer["status"] == "RESOLVE":
            wish["resolved"] = {id_: self.resolve(id_) for id_ in answer["processes"]}
            _, answer = world.call("erp", "POST", "/processes", wish)
        if answer["status"] != "STARTED":
            return 0
        process = answer["process"]
        self._may_die()
        with self._connection.transaction():
            for file in process["files"]:
                self._connection.execute("insert into effect (id) values (%s)", (file["id"],))
            self._may_die()
            reply = {"name": process["id"], "recipient": "phone", "body": len(process["files"])}
            path = f"/processes/{process['id']}"
            _, answer = world.call("erp", "POST", f"{path}/prepare", {"replies": [reply]})
            if answer != {"status": "OK"}:
                raise InterruptedError
            self._may_die()
            self._connection.execute(
                "insert into marker values (%s, 'COMMITTED')", (process["id"],)
            )
        self._may_die()
        status, answer = world.call("erp", "POST", f"{path}/commit")
        assert status == 200, answer
        return len(process["files"])

    def close(self) -> None:
        self._connection.close()


def _send_all(world: World, sender: int, count: int, failures: list[BaseException]) -> None:
    try:
        for number in range(count):
            id_ = f"s{sender}-{number}"
            body = {"id": id_, "database": "sales", "body": {"n": number}}
            status, answer = world.call("phone", "POST", "/messages", body)
            assert status in (200, 201), answer
    except BaseException as failure:  # noqa: BLE001 - told by the test
        failures.append(failure)


@pytest.mark.timeout(7200 if os.environ.get("POSTROAD_STRESS") else 240)
def test_nothing_is_lost_and_nothing_doubled_under_random_kills(
    server: TestServer, capsys: pytest.CaptureFixture[str]
) -> None:
    nursery = Nursery()
    begun = time.monotonic()
    with server.clone(*SCHEMAS) as journal, server.clone() as own:
        world = World(
            journal,
            nursery,
            file_threads=8,
            started_timeout="2s",
            ready_timeout="2s",
            suspect_after=1000,
            max_files=BATCH,
        )
        try:
            world.start()
            erp = Erp(world, own, 3)
            failures: list[BaseException] = []
            senders = [
                threading.Thread(
                    target=_send_all, args=(world, number, MESSAGES // SENDERS, failures)
                )
                for number in range(SENDERS)
            ]
            stopping = threading.Event()
            killer = threading.Thread(target=_kill, args=(world, stopping))
            for thread in (*senders, killer):
                thread.start()
            handled = 0
            while any(thread.is_alive() for thread in senders) or handled < MESSAGES:
                assert not failures, failures
                erp.work()
                row = erp._connection.execute("select count(*) from effect").fetchone()
                erp._connection.rollback()
                assert row is not None
                handled = row[0]
            stopping.set()
            killer.join()
            wait_until(
                lambda: (world.revive(), erp.work(), _is_settled(world))[2],
                what="every process ended",
                timeout_seconds=60,
            )
            doubled = erp._connection.execute(
                "select count(*) - count(distinct id), count(distinct id) from effect"
            ).fetchone()
            erp.close()
            assert doubled is not None
            lost = MESSAGES - doubled[1]
            done = world.rows("select count(*) from exchange.message where state = 'done'")[0][0]
            with capsys.disabled():
                print(  # noqa: T201 - the figure is asked for
                    f"\n{MESSAGES} messages, {world.kills} kills of the server,"
                    f" {erp.deaths} deaths of the ERP, {time.monotonic() - begun:.0f} s:"
                    f" {lost} lost, {doubled[0]} doubled"
                )
            assert world.kills > 0
            assert (lost, doubled[0], done) == (0, 0, MESSAGES)
            assert world.violations_of_folders() == []
        finally:
            stopping.set()
            world.close()
            nursery.close()


def _is_settled(world: World) -> bool:
    rows = world.rows(
        "select not exists (select from exchange.process"
        " where state not in ('DONE', 'ABORTED', 'CANCELLED'))"
        " and not exists (select from exchange.message where state in ('queued', 'leased'))"
        " and not exists (select from exchange.move)"
    )
    return bool(rows[0][0])


def _kill(world: World, stopping: threading.Event) -> None:
    chance = random.Random(11)
    pause = 0.5
    while not stopping.wait(pause):
        world.kill()
        pause = chance.uniform(1.0, 6.0)
