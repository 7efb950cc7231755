"""Rollbacks, killed backends, immediate stops and a held snapshot: nothing lost, nothing twice."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import Connection

from postroad.cli.components import SCHEMAS
from postroad.postgres.postmaster import read_postmaster
from postroad.testing import TestServer, wait_until
from tests.chaos.load import LEDGER, Load, check_ledger

MESSAGES = 210_000
STOPS = 3


@contextmanager
def held_snapshot(dsn: str) -> Iterator[Connection]:
    """Keep the horizon of the database where it is, as a long report would."""
    connection = psycopg.connect(dsn)
    connection.execute("set transaction isolation level repeatable read")
    connection.execute("select pg_current_xact_id(), count(*) from pg_class")
    try:
        yield connection
    finally:
        connection.close()


def kill_some(dsn: str, dice: random.Random) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        pids = [
            pid
            for (pid,) in connection.execute(
                "select pid from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid() and backend_type = 'client backend'"
            )
        ]
        for pid in dice.sample(pids, min(3, len(pids))):
            connection.execute("select pg_terminate_backend(%s)", (pid,))


@contextmanager
def durable_clone(server: TestServer) -> Iterator[str]:
    """Give a database whose commits survive an immediate stop; test servers do not flush."""
    with server.clone(*SCHEMAS) as dsn:
        yield f"{dsn} options='-c synchronous_commit=on'"


def stop_immediately(server: TestServer) -> None:
    """Let PostgreSQL die without a shutdown checkpoint, and start it again."""
    postmaster = read_postmaster(server.embedded.cluster.data)
    assert postmaster is not None
    os.kill(postmaster.pid, signal.SIGQUIT)
    wait_until(
        lambda: read_postmaster(server.embedded.cluster.data) is None,
        what="the server is down",
        timeout_seconds=60,
    )
    server.embedded.revive()


def reached(load: Load, share: float) -> None:
    wait_until(
        lambda: load.posted >= load.target * share or load.stop.is_set(),
        what=f"{share:.0%} of the messages are posted",
        timeout_seconds=200,
    )


@pytest.mark.both_versions
@pytest.mark.timeout(400)
def test_posted_is_consumed_through_kills_and_crashes(own_server: TestServer) -> None:
    target = MESSAGES if own_server.major >= 18 else MESSAGES // 4
    with durable_clone(own_server) as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(LEDGER)
            connection.execute("select mbus.create_queue('orders', payload => 'text')")
        load = Load(dsn, "orders", ("default",), target, seed=own_server.major)
        dice = random.Random(own_server.major)
        with load.running(producers=4, workers=6, maintainers=2):
            for stop in range(1, STOPS + 1):
                with held_snapshot(dsn):
                    reached(load, (stop - 0.5) / (STOPS + 1))
                    kill_some(dsn, dice)
                    reached(load, stop / (STOPS + 1))
                    stop_immediately(own_server)
        load.drain()
        assert check_ledger(dsn, load.consumers) >= target
        assert load.retried > 0, "nobody was hit: the test did not test"
        rotated = _figure(dsn, "orders", "tail")
        assert rotated > 8, "the ring did not turn once"


@pytest.mark.timeout(300)
def test_each_consumer_gets_each_message_once_through_kills(own_server: TestServer) -> None:
    with durable_clone(own_server) as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(LEDGER)
            connection.execute("select mbus.create_queue('orders', payload => 'text')")
            connection.execute("select mbus.create_consumer('orders', 'billing')")
        load = Load(dsn, "orders", ("default", "billing"), MESSAGES // 6, seed=own_server.major)
        dice = random.Random(own_server.major)
        with load.running(producers=3, workers=3, maintainers=1):
            for share in (0.2, 0.4, 0.6):
                reached(load, share)
                kill_some(dsn, dice)
            stop_immediately(own_server)
        load.drain()
        assert check_ledger(dsn, load.consumers) >= load.target


def _figure(dsn: str, queue: str, which: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select mbus._figure(%s, %s)", (queue, which)).fetchone()
    assert row is not None
    return int(row[0])
