from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

from postroad.bus import Bus
from postroad.postgres import connect as open_connection
from postroad.postgres import connect_async, connections, open_async_pool, open_pool
from postroad.postgres.connections import network_parameters
from postroad.postgres.errors import DatabaseUnavailable
from postroad.testing import wait_until
from tests.fixtures.postgres import Connect

NOWHERE = "host=127.0.0.1 port=1 dbname=nowhere user=u password=secret"


def _kill_all(observer: psycopg.Connection, application_name: str) -> None:
    observer.execute(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = %s",
        (application_name,),
    )


def test_a_pool_replaces_connections_that_were_killed(
    empty_database: str, connect: Connect
) -> None:
    with open_pool(empty_database, application_name="pool under test") as pool:
        with pool.connection() as connection:
            name = connection.execute("show application_name").fetchone()
            assert name == ("pool under test",)
        _kill_all(connect(empty_database, autocommit=True), "pool under test")
        with pool.connection() as connection:
            assert connection.execute("select 1").fetchone() == (1,)


async def test_an_async_pool_replaces_connections_that_were_killed(
    empty_database: str, connect: Connect
) -> None:
    pool = await open_async_pool(empty_database, application_name="pool under test")
    async with pool:
        async with pool.connection() as connection:
            await connection.execute("select 1")
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
    assert "tcp_user_timeout" not in network_parameters(f"{empty_database} tcp_user_timeout=1")


def test_a_bus_reads_utf8_whatever_the_environment_asks_for(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with Bus(database) as bus:
        bus.create_queue("letters", payload="text")
        bus.post("letters", "snow: ☃")
        assert [message.data for message in bus.consume("letters")] == ["snow: ☃"]


def test_a_pool_connects_without_a_pause_after_a_long_outage(
    empty_database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RECONNECT_TIMEOUT", timedelta(milliseconds=200))
    administrator = connect(make_conninfo(empty_database, dbname="postgres"), autocommit=True)
    allow = sql.SQL("alter database {} allow_connections {}")
    name = sql.Identifier(str(conninfo_to_dict(empty_database)["dbname"]))
    with open_pool(empty_database, application_name="pool under test") as pool:
        pool.wait()
        administrator.execute(allow.format(name, sql.SQL("false")))
        _kill_all(administrator, "pool under test")
        with pytest.raises(PoolTimeout):
            pool.getconn(timeout=0.5)
        # It has given up: what comes next is the caller's own attempt, however long the outage was.
        wait_until(lambda: pool.get_stats()["pool_size"] == 0, what="the pool has given up")
        administrator.execute(allow.format(name, sql.SQL("true")))
        with pool.connection() as connection:
            assert connection.execute("select 1").fetchone() == (1,)
