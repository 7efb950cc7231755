"""The stress scenarios of the original bus, scaled: what was sent is what is received."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

PRODUCERS = 20
WORKERS = 7
MESSAGES = 200
SENT = PRODUCERS * MESSAGES


def produce(dsn: str, producer: int) -> None:
    """Post with a commit every 100 messages."""
    with psycopg.connect(dsn) as connection:
        for number in range(MESSAGES):
            key = 100 if number % 3 == 0 else number % 50
            connection.execute(
                "select mbus.post('stress', hstore(array['key', 'n'], array[%s, %s]))",
                (str(key), f"{producer}.{number}"),
            )
            if number % 100 == 99:
                connection.commit()


def work(dsn: str, consumer: str, are_all_sent: threading.Event) -> list[str]:
    """Consume with a commit every 10 calls, until nothing is left and nobody posts any more."""
    got = []
    with psycopg.connect(dsn) as connection:
        while True:
            is_last = are_all_sent.is_set()
            found = [
                row[0]
                for _ in range(10)
                for row in connection.execute(
                    "select data->'n' from mbus.consume('stress', %s)", (consumer,)
                )
            ]
            connection.commit()
            got += found
            if not found:
                if is_last:
                    return got
                are_all_sent.wait(0.02)


def run(dsn: str, consumers: list[str]) -> dict[str, list[str]]:
    are_all_sent = threading.Event()
    with ThreadPoolExecutor(PRODUCERS + WORKERS * len(consumers)) as threads:
        working = {
            name: [threads.submit(work, dsn, name, are_all_sent) for _ in range(WORKERS)]
            for name in consumers
        }
        for producing in [threads.submit(produce, dsn, number) for number in range(PRODUCERS)]:
            producing.result()
        are_all_sent.set()
        return {
            name: [number for future in futures for number in future.result()]
            for name, futures in working.items()
        }


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_plain_all_that_was_sent_is_received_once(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("select mbus.create_queue('stress')")
    received = run(database, ["default"])["default"]
    assert len(received) == len(set(received)) == SENT
    with psycopg.connect(database) as connection:
        assert connection.execute("select sum(depth) from mbus.status").fetchone() == (0,)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.both_versions
def test_two_complementary_selectors_and_default_receive_twice_what_was_sent(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("select mbus.create_queue('stress')")
        connection.execute(
            "select mbus.create_consumer('stress', 'cons1', $$t.data->'key' = '100'$$)"
        )
        connection.execute(
            "select mbus.create_consumer('stress', 'cons2', $$t.data->'key' <> '100'$$)"
        )
    received = run(database, ["default", "cons1", "cons2"])
    assert sum(len(numbers) for numbers in received.values()) == 2 * SENT
    assert len(set(received["default"])) == SENT
    assert set(received["cons1"]) | set(received["cons2"]) == set(received["default"])
    assert set(received["cons1"]).isdisjoint(received["cons2"])
