from __future__ import annotations

import psycopg
import pytest

from postroad.testing import TestServer, wait_until_blocked
from tests.fixtures.postgres import Connect, InThread

pytestmark = pytest.mark.both_versions


def test_each_test_gets_a_database_of_its_own(server: TestServer, empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        row = connection.execute("select current_setting('server_version_num')::int").fetchone()
    assert row is not None
    assert row[0] // 10000 == server.major


def test_a_blocked_backend_is_seen(
    empty_database: str, connect: Connect, in_thread: InThread
) -> None:
    holder, waiter = connect(empty_database), connect(empty_database)
    observer = connect(empty_database, autocommit=True)
    holder.execute("select pg_advisory_xact_lock(1)")
    waiting = in_thread(waiter.execute, "select pg_advisory_xact_lock(1)")
    wait_until_blocked(observer, waiter.info.backend_pid)
    holder.rollback()
    waiting.result(timeout=20)
