"""Writes to a server that was demoted: they go on at its successor, or report an outage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from kombu import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import postroad.broker
from postroad.bus import AsyncBus
from postroad.cli.components import SCHEMAS
from postroad.postgres.journal import Journal
from postroad.testing import TestServer, wait_until
from postroad.web.application import prepare
from tests.chaos.standby import STANDBY_NAME, Pair, synchronous_pair
from tests.integration.broker.crew import url_of

postroad.broker.register()
pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(180)]

EXCHANGE_CALL = ("exchange", "add_client", "erp", "hash", False, None, None)
INTAKE_CALL = ("intake", "store_failed", "the store", "is full")


@dataclass
class Route:
    """One address that leads to either server, as a proxy that has not noticed the change."""

    pair: Pair
    folder: Path
    database: str

    @property
    def dsn(self) -> str:
        primary = conninfo_to_dict(self.pair.primary.dsn(self.database))
        return make_conninfo("", **{**primary, "host": str(self.folder)})

    def lead_to(self, server: TestServer) -> None:
        """Lead new connections to a server; those that are open stay where they are."""
        found = conninfo_to_dict(server.dsn(self.database))
        port = conninfo_to_dict(self.dsn)["port"]
        link = self.folder / f".s.PGSQL.{port}"
        link.unlink(missing_ok=True)
        link.symlink_to(Path(str(found["host"])) / f".s.PGSQL.{found['port']}")

    def demote(self) -> None:
        """Lead to a server that rejects writes, and end the connections to the other one."""
        self.lead_to(self.pair.standby)
        with psycopg.connect(self.pair.primary.dsn("postgres"), autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                [self.database],
            )

    def recover(self) -> None:
        """Lead to the server that takes writes."""
        self.lead_to(self.pair.primary)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with synchronous_pair(None) as pair:
        yield pair


@pytest.fixture
def route(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Route:
    database = pair.primary.create(pair.primary.template(*SCHEMAS))
    route = Route(pair, tmp_path_factory.mktemp("route"), database)
    with psycopg.connect(pair.primary.dsn(database)) as connection:
        connection.execute("select mbus.create_queue('orders', payload => 'jsonb')")
    _wait_until_replayed(pair)
    route.recover()
    return route


def _wait_until_replayed(pair: Pair) -> None:
    with psycopg.connect(pair.primary.dsn("postgres"), autocommit=True) as connection:
        wait_until(
            lambda: (
                connection.execute(
                    "select from pg_stat_replication where application_name = %s"
                    " and replay_lsn >= pg_current_wal_lsn()",
                    [STANDBY_NAME],
                ).rowcount
            ),
            what="the standby has replayed everything",
        )


@pytest.mark.parametrize("call", [EXCHANGE_CALL, INTAKE_CALL], ids=["exchange", "intake"])
async def test_a_write_of_a_journal_is_repeated_at_the_successor(
    route: Route, call: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    schema, function, *parameters = call
    journal = Journal(route.dsn, schema)
    route.demote()
    async with journal.connection() as connection:
        # The address is repaired; the connection that was made before is not.
        cursor = await connection.execute("select pg_is_in_recovery()")
        assert await cursor.fetchone() == (True,)
    route.recover()
    try:
        with caplog.at_level("INFO", "postroad.postgres.journal"):
            assert await journal.call(function, *parameters) is not None
    finally:
        await journal.close()
    assert "journal_call_repeated" in caplog.text


async def test_a_request_is_answered_as_unavailable(route: Route) -> None:
    app = FastAPI()
    async with AsyncBus(route.dsn) as bus:

        @app.post("/orders")
        async def order() -> str:
            return await bus.post("orders", {"n": 1})

        transport = httpx.ASGITransport(app=prepare(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            assert (await client.post("/orders")).status_code == 200
            route.demote()
            answer = await client.post("/orders")
    assert answer.status_code == 503, answer.text
    assert answer.json()["code"] == "database_unavailable"


def test_celery_leaves_the_session_on_a_demoted_server(route: Route) -> None:
    failures: list[BaseException] = []

    def note(failure: BaseException, _: float) -> None:
        failures.append(failure)
        # The first failure is that of the connection that was lost with the primary.
        if isinstance(failure, psycopg.errors.ReadOnlySqlTransaction):
            route.recover()

    with Connection(url_of(route.dsn)) as connection:
        with connection.SimpleQueue("tasks") as tasks:
            tasks.put("before")
        route.demote()
        producer = connection.Producer()
        producer.publish(
            "after",
            routing_key="tasks",
            retry=True,
            retry_policy={"max_retries": 5, "interval_start": 0, "errback": note},
        )
        with connection.SimpleQueue("tasks") as tasks:
            assert [tasks.get(timeout=10).payload for _ in range(2)] == ["before", "after"]
    assert any(isinstance(one, psycopg.errors.ReadOnlySqlTransaction) for one in failures)
