from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

from postroad.bus import Bus
from postroad.postgres import connect as open_connection
from postroad.postgres import connect_async, connections, open_async_pool
from postroad.postgres.connections import parameters as parameters_of
from postroad.postgres.errors import DatabaseUnavailable
from postroad.testing import wait_until_async
from tests.fixtures.postgres import Connect

NOWHERE = "host=127.0.0.1 port=1 dbname=nowhere user=u password=secret"


def _kill_all(observer: psycopg.Connection, application_name: str) -> None:
    observer.execute(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = %s",
        (application_name,),
    )


async def test_a_pool_replaces_connections_that_were_killed(
    empty_database: str, connect: Connect
) -> None:
    pool = await open_async_pool(empty_database, application_name="pool under test")
    async with pool:
        async with pool.connection() as connection:
            name = await (await connection.execute("show application_name")).fetchone()
            assert name == ("pool under test",)
        _kill_all(connect(empty_database, autocommit=True), "pool under test")
        async with pool.connection() as connection:
            found = await (await connection.execute("select 1")).fetchone()
            assert found == (1,)


def test_a_database_that_is_not_there_is_unavailable_and_no_secret_is_told() -> None:
    with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1") as missing:
        open_connection(NOWHERE)
    assert missing.value.retryable
    assert "secret" not in str(missing.value)


async def test_an_async_connection_says_the_same() -> None:
    with pytest.raises(DatabaseUnavailable):
        await connect_async(NOWHERE)


def test_every_connection_has_timeouts_unless_its_dsn_sets_them(empty_database: str) -> None:
    with open_connection(empty_database) as connection:
        parameters = connection.info.get_parameters()
    assert int(parameters["tcp_user_timeout"]) > 0
    assert int(parameters["connect_timeout"]) > 0
    assert "tcp_user_timeout" not in parameters_of(f"{empty_database} tcp_user_timeout=1")
    with open_connection(f"{empty_database} connect_timeout=3") as connection:
        assert connection.info.get_parameters()["connect_timeout"] == "3"


def test_a_bus_reads_utf8_whatever_the_environment_asks_for(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with Bus(database) as bus:
        bus.create_queue("letters", payload="text")
        bus.post("letters", "snow: ☃")
        assert [message.data for message in bus.consume("letters")] == ["snow: ☃"]


async def test_a_pool_connects_without_a_pause_after_a_long_outage(
    empty_database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RECONNECT_TIMEOUT", timedelta(milliseconds=200))
    administrator = connect(make_conninfo(empty_database, dbname="postgres"), autocommit=True)
    allow = sql.SQL("alter database {} allow_connections {}")
    name = sql.Identifier(str(conninfo_to_dict(empty_database)["dbname"]))
    async with await open_async_pool(empty_database, application_name="pool under test") as pool:
        await pool.wait()
        administrator.execute(allow.format(name, sql.SQL("false")))
        _kill_all(administrator, "pool under test")
        with pytest.raises(PoolTimeout):
            await pool.getconn(timeout=0.5)
        # It has given up: what comes next is the caller's own attempt, however long the outage was.

        async def is_empty() -> bool:
            return pool.get_stats()["pool_size"] == 0

        await wait_until_async(is_empty, what="the pool has given up")
        administrator.execute(allow.format(name, sql.SQL("true")))
        async with pool.connection() as connection:
            found = await (await connection.execute("select 1")).fetchone()
            assert found == (1,)
