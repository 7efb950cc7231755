"""Programs that send tasks in their transactions are killed: a row has its task, no row none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from postroad.testing import wait_until
from tests.integration.broker.senders import SENDERS

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

IS_FULL = bool(os.environ.get("POSTROAD_STRESS"))
TRANSACTIONS = 20_000 if IS_FULL else 200
KILLS = 20 if IS_FULL else 2
ROOT = Path(__file__).parents[2]


@contextmanager
def sender(name: str, dsn: str, last: int) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["-m", "tests.integration.broker.senders", name, dsn, str(last)]
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def sent(connection: psycopg.Connection) -> list[int]:
    """Consume the messages and return the numbers in the arguments of their tasks."""
    [bus_name] = connection.execute("select bus_name from broker.queue").fetchone() or ("",)
    query = f"select data from mbus.consumen_{bus_name}_by_default(1000)"
    numbers = []
    while rows := connection.execute(query.encode()).fetchall():
        for [text] in rows:
            [[number], _, _] = json.loads(json.loads(text)["body"])
            numbers.append(int(number))
    return numbers


@pytest.mark.timeout(7200 if IS_FULL else 600)
@pytest.mark.parametrize("name", SENDERS)
def test_a_committed_row_has_one_task_and_a_rolled_back_row_none(name: str, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table shop_order (number int primary key)")
        connection.execute("create sequence shop_order_number")

        def done() -> int:
            row = connection.execute("select last_value from shop_order_number").fetchone()
            return int(row[0]) if row else 0

        for _ in range(KILLS):
            # It would never end, so it is killed in the middle however late that is.
            goal = done() + TRANSACTIONS // (KILLS + 1)
            with sender(name, database, sys.maxsize) as process:
                # A slow machine needs long for all of them, but not for one.
                while (seen := done()) < goal:
                    wait_until(
                        lambda seen=seen: done() > seen,  # type: ignore[misc]
                        what="a transaction of the program",
                        timeout_seconds=120,
                    )
                assert process.poll() is None
        with sender(name, database, max(TRANSACTIONS, done() + 2)) as process:
            assert process.wait() == 0

        # The server may not have detected yet that the killed programs are gone.
        others = "select count(*) from pg_stat_activity where datname = current_database()"
        wait_until(
            lambda: connection.execute(others).fetchone() == (1,), what="their sessions ended"
        )
        stored = [number for [number] in connection.execute("select number from shop_order")]
        assert sorted(sent(connection)) == sorted(stored)
        # Each program ends in the middle of one transaction, and begins with one that rolls back.
        assert done() // 2 - 2 * (KILLS + 1) <= len(stored) <= done() // 2
