"""Temporary queues under load: the ring turns all the time, and each message comes once."""

from __future__ import annotations

import random
import threading

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import one, rows

pytestmark = pytest.mark.both_versions

PRODUCERS = 3
MESSAGES = 300


def produce(connection: Connection, name: str, producer: int) -> None:
    chance = random.Random(producer)
    for number in range(MESSAGES):
        # A post that is rolled back, now and then, and several in one transaction.
        if chance.random() < 0.2:
            connection.commit()
            connection.execute("select mbus.post(%s, 'n=>never')", (name,))
            connection.rollback()
        connection.execute(
            "select mbus.post(%s, hstore(array['p', 'n'], array[%s, %s]))",
            (name, str(producer), str(number)),
        )
        if chance.random() < 0.5 or number == MESSAGES - 1:
            connection.commit()


def maintain(connection: Connection, done: threading.Event) -> int:
    while not done.is_set():
        connection.execute("select mbus._maintain_temporary()")
    return one(connection, "select pg_sequence_last_value('mbus.tempq_tail') / 4")


def test_nothing_is_lost_while_the_ring_turns(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    owner, maintainer = connect(live), connect(live, autocommit=True)
    maintainer.execute(
        "create or replace function mbus._tempq_bytes() returns bigint"
        " language sql immutable parallel safe return 8192"
    )
    name = one(owner, "select mbus.create_temporary_queue()")
    owner.commit()
    done = threading.Event()
    maintaining = in_thread(maintain, maintainer, done)
    producing = [in_thread(produce, connect(live), name, producer) for producer in range(PRODUCERS)]
    chance = random.Random(0)
    seen: dict[str, list[int]] = {str(producer): [] for producer in range(PRODUCERS)}
    try:
        while sum(map(len, seen.values())) < PRODUCERS * MESSAGES:
            got = rows(
                owner,
                "select data->'p', data->'n' from mbus.consume_temporary(%s, 20, '10 seconds')",
                name,
            )
            assert got, seen
            if chance.random() < 0.2:
                owner.rollback()
                continue
            owner.commit()
            for producer, number in got:
                seen[producer].append(int(number))
    finally:
        done.set()
    assert maintaining.result(timeout=10) > 5
    for future in producing:
        future.result(timeout=10)
    for numbers in seen.values():
        # Each once. The order may differ where the ring turned between two looks.
        assert sorted(numbers) == list(range(MESSAGES))
