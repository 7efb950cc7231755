"""The crash table kills where it says, and its checks find lost and repeated work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroad.testing import TestServer
from proof.crashes import SCENARIOS, explore
from proof.crashes.proxy import KillingProxy
from proof.crashes.scenarios import Scenario
from proof.crashes.work import Place

PROGRAM = """
import sys, psycopg
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    for number in range(100):
        connection.execute("insert into done values (%s)", (number,))
"""


@pytest.mark.parametrize("side", ["request", "reply"])
def test_a_program_is_killed_before_or_after_one_of_its_statements(
    database: str, side: Any
) -> None:
    place = conninfo_to_dict(database)
    socket = f"{place['host']}/.s.PGSQL.{place['port']}"
    with psycopg.connect(database, autocommit=True) as control:
        control.execute("create table done (n integer)")
        counts = []
        for at in (10, 11):
            with KillingProxy(socket, at, side) as proxy:
                through = {**place, "host": "127.0.0.1", "port": proxy.port}
                command = [sys.executable, "-c", PROGRAM, make_conninfo("", **through)]
                with subprocess.Popen(command) as process:
                    proxy.pid = process.pid
                    assert process.wait(60) == -9
                assert (proxy.has_killed, proxy.messages) == (True, at)
            counts += control.execute("select count(*) from done").fetchall()
            control.execute("truncate done")
    # One statement later: one row more; an answered statement has been done.
    (first,), (second,) = counts
    assert second == first + 1
    assert first > 0


@pytest.mark.parametrize(
    ("name", "rows", "found"),
    [
        ("worker_in_transactions", "select generate_series(0, 7)", False),
        ("worker_in_transactions", "select generate_series(0, 6)", True),
        ("worker_in_transactions", "select generate_series(0, 7) union all select 3", True),
        ("saga_steps", "values (1, 'rooms')", True),
    ],
)
def test_a_check_finds_planted_rows(
    database: str, tmp_path: Path, name: str, rows: str, found: bool
) -> None:
    with prepared(database, tmp_path, name) as (scenario, place):
        execute(database, f"insert into done {rows}")
        assert bool(scenario.check(place)) == found


@contextmanager
def prepared(database: str, folder: Path, name: str) -> Iterator[tuple[Scenario, Place]]:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    with ExitStack() as stack:
        place = Place((database,) * scenario.databases, folder, stack)
        scenario.prepare(place)
        yield scenario, place


def execute(database: str, statement: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_the_check_of_actions_finds_one_that_was_done_by_half(
    database: str, tmp_path: Path
) -> None:
    with prepared(database, tmp_path, "operator") as (scenario, place):
        found = scenario.check(place)
    assert [text.partition(":")[0] for text in found] == [
        "work",
        "archive",
        "kept",
        "paused",
        "dead",
        "schedules",
    ]


def test_the_check_of_alerts_finds_one_mail_under_two_ids(database: str, tmp_path: Path) -> None:
    with prepared(database, tmp_path, "alerts") as (scenario, place):
        for number, what in enumerate(("error", "error", "all clear")):
            mail = EmailMessage()
            mail["Subject"] = f"[Postroad] {what}: disk full"
            mail["Message-ID"] = f"<{number}@test>"
            place.servers["smtp"].taken.append(mail)
        assert any("'[Postroad] error: disk full': 2" in text for text in scenario.check(place))


def test_the_check_of_tasks_finds_one_that_never_ran(database: str, tmp_path: Path) -> None:
    with prepared(database, tmp_path, "celery_worker") as (scenario, place):
        place.servers["tasks"].clear()
        execute(database, "insert into done select generate_series(0, 6)")
        assert scenario.check(place)[0] == "done: {0, 1, 2, 3, 4, 5, 6}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_killed_at_two_messages_loses_nothing(server: TestServer) -> None:
    result = explore(server, SCENARIOS[0], points=2)
    assert result.kills > 0
    assert result.violations == ()
