"""A load with a ledger: what was posted and what was consumed is noted in the same transactions.

So after any crash the truth is in the database: posted = consumed + left, and nothing twice.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import Connection, sql

LEDGER = """
create table posted (iid text);
create table consumed (consumer text, iid text);
-- Small slots, so that the ring turns many times.
create or replace function mbus._slot_bytes() returns bigint
language sql immutable parallel safe return 262144;
"""
PAYLOAD_LENGTH = 300


@dataclass
class Load:
    """Producers, consumers and maintainers on one queue until enough has been posted."""

    dsn: str
    queue: str
    consumers: tuple[str, ...]
    target: int
    seed: int = 1
    stop: threading.Event = field(default_factory=threading.Event)
    posted: int = 0
    retried: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def produce(self, worker: int) -> None:
        """Post random batches, one in five rolled back, until the target is reached."""
        dice = random.Random(f"{self.seed} produce {worker}")
        statement = sql.SQL("select {}(%s)").format(sql.Identifier("mbus", f"postn_{self.queue}"))

        def one(connection: Connection) -> None:
            count = dice.choice((1, 1, 10, 100, 300))
            data = ["x" * PAYLOAD_LENGTH] * count
            (iids,) = connection.execute(statement, (data,)).fetchone() or ([],)
            connection.execute("insert into posted select unnest(%s::text[])", (iids,))
            if dice.random() < 0.2:
                connection.rollback()
                return
            connection.commit()
            with self._lock:
                self.posted += count
                if self.posted >= self.target:
                    self.stop.set()

        self._repeat(one)

    def consume(self, worker: int, consumer: str) -> None:
        """Take random batches, three in ten rolled back, until the queue stays empty."""
        dice = random.Random(f"{self.seed} consume {worker}")
        function = sql.Identifier("mbus", f"consumen_{self.queue}_by_{consumer}")
        statement = sql.SQL("insert into consumed select %s, iid from {}(%s) returning iid").format(
            function
        )

        def one(connection: Connection) -> None:
            connection.execute(statement, (consumer, dice.choice((1, 7, 100, 300))))
            if dice.random() < 0.3:
                connection.rollback()
            else:
                connection.commit()

        self._repeat(one)

    def maintain(self) -> None:
        """Run maintenance as fast as it goes."""

        def one(connection: Connection) -> None:
            connection.execute("select from mbus.maintain()")
            connection.commit()

        self._repeat(one)

    def drain(self) -> None:
        """Consume what is left, without rollbacks."""
        with psycopg.connect(self.dsn) as connection:
            for consumer in self.consumers:
                function = sql.Identifier("mbus", f"consumen_{self.queue}_by_{consumer}")
                statement = sql.SQL("insert into consumed select %s, iid from {}(1000)")
                while connection.execute(statement.format(function), (consumer,)).rowcount:
                    connection.commit()

    @contextmanager
    def running(self, producers: int, workers: int, maintainers: int) -> Iterator[None]:
        """Run everything in threads; leave when the target is reached and all have ended."""
        with ThreadPoolExecutor(max_workers=64) as threads:
            calls = [threads.submit(self.produce, n) for n in range(producers)]
            calls += [
                threads.submit(self.consume, n, consumer)
                for n in range(workers)
                for consumer in self.consumers
            ]
            calls += [threads.submit(self.maintain) for _ in range(maintainers)]
            try:
                yield
            except BaseException:
                self.stop.set()
                raise
            for call in calls:
                call.result(timeout=240)

    def _repeat(self, one: Callable[[Connection], None]) -> None:
        """Do one thing again and again, through kills and restarts, until told to stop."""
        connection: Connection | None = None
        while not self.stop.is_set():
            try:
                if connection is None:
                    connection = psycopg.connect(self.dsn, connect_timeout=10)
                one(connection)
            except psycopg.OperationalError:
                # Killed, or the server is away. Whether the commit came through is in the ledger.
                with self._lock:
                    self.retried += 1
                if connection is not None:
                    connection.close()
                connection = None
                self.stop.wait(0.02)
        if connection is not None:
            connection.close()


def check_ledger(dsn: str, consumers: tuple[str, ...]) -> int:
    """Assert posted = consumed for every consumer, each iid once; return how many were posted."""
    with psycopg.connect(dsn) as connection:
        (posted, distinct) = connection.execute(
            "select count(*), count(distinct iid) from posted"
        ).fetchone() or (0, 0)
        assert posted == distinct, "an iid was given out twice"
        for consumer in consumers:
            lost, invented, twice = connection.execute(
                """
                select (select count(*) from (select iid from posted except
                          select iid from consumed where consumer = %(c)s) x),
                       (select count(*) from (select iid from consumed where consumer = %(c)s except
                          select iid from posted) x),
                       (select count(*) - count(distinct iid) from consumed where consumer = %(c)s)
                """,
                {"c": consumer},
            ).fetchone() or (None, None, None)
            assert (lost, invented, twice) == (0, 0, 0), f"{consumer}: lost, invented, twice"
    return int(posted)
