"""What the chaos tests of bridges share: servers and processes that die, and a load to count."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import psycopg

from postroad.bridge import Addresses, operations
from postroad.postgres.postmaster import read_postmaster
from postroad.settings import BridgeDefinition
from postroad.testing import TestServer, wait_until

IS_STRESS = bool(os.environ.get("POSTROAD_STRESS"))
POST_CHUNK = 100


def crash(server: TestServer) -> None:
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


class Process:
    """A `postroad` command that is killed and started again."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._command = [sys.executable, "-c", "from postroad.cli import run; run()", *arguments]
        inherited = {name: os.environ[name] for name in os.environ if name != "POSTROAD_STRESS"}
        self._environment = {**inherited, **environment}
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._running = subprocess.Popen(
            self._command, env=self._environment, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def __enter__(self) -> Process:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Producer(threading.Thread):
    """Posts numbers in order, each in a transaction that is repeated until it has committed."""

    def __init__(self, dsn: str, count: int) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self.count = count
        self.posted = 0

    def run(self) -> None:
        while self.posted < self.count:
            try:
                with psycopg.connect(self._dsn) as connection:
                    # What the last commit did is not known when its connection broke.
                    row = connection.execute("select coalesce(max(n), 0) from posted").fetchone()
                    assert row is not None
                    self.posted = int(row[0])
                    while self.posted < self.count:
                        self._post(connection)
            except psycopg.OperationalError:
                continue

    def _post(self, connection: psycopg.Connection) -> None:
        last = min(self.count, self.posted + POST_CHUNK)
        connection.execute(
            "select mbus.postn_orders(array_agg(hstore('n', g::text) order by g))"
            " from generate_series(%s::integer, %s::integer) g",
            (self.posted + 1, last),
        )
        connection.execute("insert into posted values (%s)", (last,))
        connection.commit()
        self.posted = last


def prepare(dsn: str, *, is_source: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select mbus.create_queue('orders')")
        if is_source:
            connection.execute("create table posted (n integer)")


def add_bridge(home: str, **definition: str) -> None:
    """Add a bridge called orders to the configuration of this database."""
    asyncio.run(operations.add(Addresses(home), BridgeDefinition(**definition), "orders"))


def arrived(dsn: str) -> int:
    """Count what has arrived, by the ledger; while the server is down, say that nothing has."""
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            row = connection.execute(
                "select coalesce(sum(upper(r) - lower(r)), 0)"
                " from bridge.ledger l cross join unnest(l.numbers) r"
            ).fetchone()
    except psycopg.OperationalError:
        return -1
    return int(row[0]) if row else 0


def read_all(dsn: str) -> list[int]:
    """Consume everything that has arrived and return its numbers in order."""
    numbers: list[int] = []
    with psycopg.connect(dsn) as connection:
        while True:
            rows = connection.execute(
                "select (data -> 'n')::integer from mbus.consumen_orders_by_default(5000)"
            ).fetchall()
            connection.commit()
            if not rows:
                return numbers
            numbers += [number for (number,) in rows]


def wreak(
    target: str, total: int, blows: list[Callable[[], None]], dice: random.Random, count: int
) -> None:
    """Strike while messages cross: every so many that have arrived, one of the blows."""
    order = [blows[number % len(blows)] for number in range(count)]
    dice.shuffle(order)
    for number, blow in enumerate(order, start=1):
        share = total * number // (count + 1)
        wait_until(
            lambda share=share: arrived(target) >= share,
            what=f"{share} arrived",
            timeout_seconds=300,
        )
        blow()
