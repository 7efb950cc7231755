"""The crash table kills where it says, and its checks find lost and repeated work."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroad.testing import TestServer
from proof.crashes import SCENARIOS, explore
from proof.crashes.proxy import KillingProxy

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
def test_a_check_finds_planted_rows(database: str, name: str, rows: str, found: bool) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    scenario.prepare(database, database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"insert into done {rows}".encode())
    assert bool(scenario.check(database, database)) == found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_killed_at_two_messages_loses_nothing(server: TestServer) -> None:
    result = explore(server, SCENARIOS[0], points=2)
    assert result.kills > 0
    assert result.violations == ()
