"""Many sagas at once (1,000 with `make stress`), some failing, workers killed: all end well."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import Connection, errors

from postroad.testing import TestServer, wait_until
from tests.fixtures.postgres import Connect
from tests.sql.calls import one
from tests.sql.tour import FORWARD, QUEUES, UNDO, create_tour_queues, left, tour_steps

SAGAS = 1_000 if os.environ.get("POSTROAD_STRESS") else 100
HANDLERS = 8
LEDGER = """
create table ledger (saga bigint, step text, what text);
create table dice (saga bigint, step text);
"""


class Crew:
    """Handlers of all queues, which crash, abort, and are killed."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.dsn = dsn
        self.seed = seed
        self.stop = threading.Event()
        self.killed = 0
        self.deadlocks = 0

    def handle(self, worker: int) -> None:
        dice = random.Random(f"{self.seed} {worker}")

        def one_message(connection: Connection) -> bool:
            queue = dice.choice(QUEUES)
            found = connection.execute(
                f"select iid, headers->'saga', headers->'step', headers->'bung'"
                f" from mbus.consume_{queue}_by_default()".encode()
            ).fetchone()
            if found is None:
                connection.rollback()
                return False
            iid, saga, step, bung = found
            is_undo = queue in UNDO.values()
            connection.execute(
                "insert into ledger values (%s, %s, %s)", (saga, step, "undo" if is_undo else "do")
            )
            if dice.random() < 0.05:
                connection.rollback()
            elif not is_undo and self._fails(connection, saga, step):
                connection.execute(
                    "delete from ledger where saga = %s and step = %s and what = 'do'", (saga, step)
                )
                if dice.random() < 0.5:
                    connection.execute("select mbus.take(%s)", (bung,))
                else:
                    connection.execute("select mbus.abort_saga(%s, 'no')", (iid,))
                connection.commit()
            else:
                connection.commit()
            return True

        self._repeat(one_message)

    def handle_leased(self, worker: int) -> None:
        """Lease, work in a transaction of its own, and answer in it, or never."""
        dice = random.Random(f"{self.seed} leased {worker}")

        def one_message(connection: Connection) -> bool:
            queue = dice.choice(QUEUES)
            found = connection.execute(
                f"select iid, token, headers->'saga', headers->'step'"
                f" from mbus.lease_{queue}_by_default(1, '2 seconds')".encode()
            ).fetchone()
            connection.commit()
            if found is None:
                return False
            iid, token, saga, step = found
            is_undo = queue in UNDO.values()
            if dice.random() < 0.05:
                return True
            if not is_undo and self._fails(connection, saga, step):
                connection.execute(
                    "select mbus.nack(%s, %s, error => 'no', park => true)", (iid, token)
                )
            else:
                connection.execute(
                    "insert into ledger values (%s, %s, %s)",
                    (saga, step, "undo" if is_undo else "do"),
                )
                connection.execute("select mbus.ack(%s, %s)", (iid, token))
            connection.commit()
            return True

        self._repeat(one_message)

    def maintain(self) -> None:
        def once(connection: Connection) -> bool:
            connection.execute("select from mbus.maintain()")
            connection.commit()
            return False

        self._repeat(once)

    def _fails(self, connection: Connection, saga: str, step: str) -> bool:
        # Decided when the saga was made, so that a repetition decides the same.
        return bool(
            one(
                connection,
                "select exists (select from dice where saga = %s and step = %s)",
                saga,
                step,
            )
        )

    def _repeat(self, call: Callable[[Connection], bool]) -> None:
        connection: Connection | None = None
        while not self.stop.is_set():
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(self.dsn)
                if not call(connection):
                    self.stop.wait(0.005)
            except psycopg.DatabaseError as error:
                # A lease that has ended: the machine is slow, and somebody else has the message.
                if error.sqlstate == "MB015" and connection is not None:
                    connection.rollback()
                    continue
                if not isinstance(error, psycopg.OperationalError):
                    raise
                if isinstance(error, errors.DeadlockDetected) and connection is not None:
                    self.deadlocks += 1
                    connection.rollback()
                    continue
                self.killed += 1
                connection = None
        if connection is not None:
            connection.close()


def start_sagas(connection: Connection, count: int, dice: random.Random) -> None:
    steps = json.dumps(tour_steps())
    for _ in range(count):
        saga = one(connection, "select mbus.create_saga('tour', %s)", steps)
        if dice.random() < 0.1:
            connection.execute(
                "insert into dice values (%s, %s)", (saga, dice.choice(list(FORWARD)))
            )
        connection.commit()


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_many_sagas_end_well(server: TestServer, database: str, connect: Connect) -> None:
    dice = random.Random(server.major)
    connection = connect(database)
    create_tour_queues(connection)
    connection.execute(LEDGER)
    connection.commit()
    crew = Crew(database, server.major)
    start_sagas(connection, SAGAS, dice)
    connection.close()
    main = connect(database, autocommit=True)
    with ThreadPoolExecutor(max_workers=HANDLERS + 1) as threads:
        calls = [threads.submit(crew.handle, worker) for worker in range(HANDLERS // 2)]
        calls += [threads.submit(crew.handle_leased, worker) for worker in range(HANDLERS // 2)]
        calls.append(threads.submit(crew.maintain))
        try:
            for share in (0.2, 0.4, 0.6, 0.8):
                reached(main, round(SAGAS * share))
                kill_some(main, dice)
            reached(main, SAGAS)
            wait_until(lambda: left(main) == {}, what="nothing is left", timeout_seconds=30)
        finally:
            crew.stop.set()
        for call in calls:
            call.result(timeout=60)
    assert crew.killed > 0, "nobody was hit: the test did not test"
    check(main)


def reached(connection: Connection, count: int) -> None:
    wait_until(
        lambda: finished(connection) >= count,
        what=f"{count} sagas are over",
        timeout_seconds=300,
    )


def finished(connection: Connection) -> int:
    return one(connection, "select count(*) from mbus.saga where finished_at is not null")


def kill_some(connection: Connection, dice: random.Random) -> None:
    pids = [
        pid
        for (pid,) in connection.execute(
            "select pid from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
    ]
    for pid in dice.sample(pids, min(3, len(pids))):
        connection.execute("select pg_terminate_backend(%s)", (pid,))


def check(connection: Connection) -> None:
    """Each saga did everything once, or undid once what it did once."""
    wrong = connection.execute(
        """
        with counted as (
          select s.saga_id, s.state, s.step,
                 count(*) filter (where l.what = 'do') as done,
                 count(*) filter (where l.what = 'undo') as undone
          from mbus.saga_status s
          left join ledger l on l.saga = s.saga_id and l.step = s.step
          group by 1, 2, 3)
        select * from counted
        where not (state = 'completed' and done = 1 and undone = 0
                   or state = 'compensated' and done <= 1 and undone = done)
        """
    ).fetchall()
    assert wrong == []
    failing = one(connection, "select count(*) from dice")
    assert failing > 0
    assert one(connection, "select count(*) from mbus.saga where state = 'compensated'") == failing
