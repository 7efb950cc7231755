"""The original's third stress scenario: pairs, the second of which must come after the first."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import psycopg
import pytest
from psycopg import Connection

PRODUCERS = 20
CONSUMERS = 7
# `make stress` runs the full number; the suite a tenth of it.
PAIRS = 20_000 if os.environ.get("POSTROAD_STRESS") else 2_000

LEDGER = """
create table sent (iid text);
create table received (place bigint generated always as identity, iid text, predecessor text);
"""


@dataclass
class Pairs:
    """Producers of pairs and consumers that note what they got, in the same transactions."""

    dsn: str
    pairs_each: int
    is_rough: bool
    sent: threading.Event = field(default_factory=threading.Event)
    killed: int = 0

    def produce(self, worker: int) -> None:
        dice = random.Random(f"produce {worker}")
        left = self.pairs_each

        def one(connection: Connection) -> bool:
            nonlocal left
            (first,) = connection.execute("select mbus.post_pairs('a')").fetchone() or ("",)
            (second,) = connection.execute(
                "select mbus.post_pairs('b', hstore('consume_after', %s))", (first,)
            ).fetchone() or ("",)
            connection.execute("insert into sent values (%s), (%s)", (first, second))
            if self.is_rough and dice.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()
                left -= 1
            return left > 0

        self._repeat(one)

    def consume(self, worker: int) -> None:
        dice = random.Random(f"consume {worker}")

        def one(connection: Connection) -> bool:
            found = connection.execute(
                "insert into received (iid, predecessor) select iid, headers->'consume_after'"
                " from mbus.consumen_pairs_by_default(%s) returning iid",
                (dice.choice((1, 1, 10)),),
            ).rowcount
            if self.is_rough and dice.random() < 0.2:
                connection.rollback()
                return True
            connection.commit()
            return bool(found) or not self.sent.is_set() or self._is_left(connection)

        self._repeat(one)

    def maintain(self, done: threading.Event) -> None:
        def one(connection: Connection) -> bool:
            connection.execute("select from mbus.maintain()")
            connection.commit()
            return not done.wait(0.02)

        self._repeat(one)

    def kill(self, done: threading.Event) -> None:
        dice = random.Random("kill")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while not done.wait(0.3):
                pids = connection.execute(
                    "select pid from pg_stat_activity where datname = current_database()"
                    " and pid <> pg_backend_pid() and backend_type = 'client backend'"
                ).fetchall()
                for (pid,) in dice.sample(pids, min(2, len(pids))):
                    connection.execute("select pg_terminate_backend(%s)", (pid,))
                    self.killed += 1

    @staticmethod
    def _is_left(connection: Connection) -> bool:
        (depth,) = connection.execute(
            "select depth from mbus.status where queue = 'pairs'"
        ).fetchone() or (0,)
        connection.rollback()
        return bool(depth)

    def _repeat(self, one: Callable[[Connection], bool]) -> None:
        connection: Connection | None = None
        goes_on = True
        while goes_on:
            try:
                if connection is None:
                    connection = psycopg.connect(self.dsn)
                goes_on = one(connection)
            except psycopg.OperationalError:
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("is_rough", [False, True], ids=["plain", "rollbacks and kills"])
def test_the_predecessor_always_comes_first(database: str, is_rough: bool) -> None:
    pairs = Pairs(database, PAIRS // PRODUCERS, is_rough)
    with psycopg.connect(database) as connection:
        connection.execute(LEDGER)
        connection.execute("select mbus.create_queue('pairs', payload => 'text')")
    done = threading.Event()
    with ThreadPoolExecutor(max_workers=PRODUCERS + CONSUMERS + 2) as threads:
        aside = [threads.submit(pairs.maintain, done)]
        if is_rough:
            aside.append(threads.submit(pairs.kill, done))
        producers = [threads.submit(pairs.produce, n) for n in range(PRODUCERS)]
        consumers = [threads.submit(pairs.consume, n) for n in range(CONSUMERS)]
        try:
            for producer in producers:
                producer.result(timeout=300)
        finally:
            pairs.sent.set()
        for consumer in consumers:
            consumer.result(timeout=300)
        done.set()
        for call in aside:
            call.result(timeout=60)
    with psycopg.connect(database) as connection:
        sent, received, distinct = connection.execute(
            "select (select count(*) from sent), count(*), count(distinct iid) from received"
        ).fetchone() or (0, 0, 0)
        assert received == distinct == sent >= 2 * PRODUCERS * pairs.pairs_each
        (inverted,) = connection.execute(
            "select count(*) from received b left join received a on a.iid = b.predecessor"
            " where b.predecessor is not null and (a.place is null or a.place > b.place)"
        ).fetchone() or (None,)
        assert inverted == 0
    assert not is_rough or pairs.killed > 0
