"""Messages that wait for others: what they cost the rest, and how fast they are freed."""

from __future__ import annotations

import statistics
import time

import psycopg

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_most
from benchmarks.shapes import PAYLOAD

BLOCKED = 100_000
SUCCESSORS = 10_000
READY = 5_000
ROUNDS = 300
BATCH = 500

Session = psycopg.Connection[tuple[object, ...]]


def run(lab: Lab) -> Findings:
    """Take from a queue with and without blocked messages, then free the successors of one."""
    blocked, successors = lab.scaled(BLOCKED, BATCH), lab.scaled(SUCCESSORS, BATCH)
    with psycopg.connect(lab.dsn, autocommit=True, prepare_threshold=0) as connection:
        before, free, burdened = lab.new_queue(), lab.new_queue(), lab.new_queue()
        lab.report(f"blocking {blocked:,}")
        _block(connection, burdened, _post(connection, before), blocked)
        for queue in (free, burdened):
            connection.execute(
                f"select mbus.postn_{queue}(array_fill(%s::text, array[{READY}]))".encode(),
                (PAYLOAD,),
            )
        lab.report("taking in turns")
        timings: dict[str, list[float]] = {free: [], burdened: []}
        for number in range(ROUNDS + 20):
            for queue, taken in timings.items():
                took = _take(connection, queue)
                if number >= 20:
                    taken.append(took)
        lab.report(f"freeing {successors:,}")
        lone = _take(connection, free)
        second = lab.new_queue()
        _block(connection, lab.new_queue(), _post(connection, second), successors)
        began = time.perf_counter()
        consumer = _take(connection, second)
        while _left(connection, blocked):
            connection.execute("select from mbus.maintain()")
        freed = time.perf_counter() - began
    middle = {queue: statistics.median(taken) for queue, taken in timings.items()}
    return Findings(
        [
            Figure(
                f"take(1) beside {blocked:,} blocked messages in the same queue",
                f"{middle[burdened]:.3f} ms",
                f"without them {middle[free]:.3f} ms",
                middle[burdened] / middle[free],
                "x",
                at_most(1.3),
            ),
            Figure(
                f"{successors:,} successors of one message are released",
                f"{freed:.2f} s",
                f"its consumer {consumer:.1f} ms, a plain one {lone:.1f} ms",
                freed,
                "s",
                at_most(1),
            ),
        ],
        {"take_ms": {"free": middle[free], "burdened": middle[burdened]}, "freed_s": freed},
    )


def _post(connection: Session, queue: str) -> str:
    row = connection.execute(f"select mbus.post_{queue}('first')".encode()).fetchone()
    return str(row[0]) if row else ""


def _block(connection: Session, queue: str, predecessor: str, count: int) -> None:
    statement = (
        f"select count(mbus.post_{queue}('x', hstore('consume_after', %s)))"
        f" from generate_series(1, {BATCH})"
    )
    for _ in range(count // BATCH):
        connection.execute(statement.encode(), (predecessor,))


def _left(connection: Session, more_than: int) -> bool:
    """Tell whether more messages are blocked than those of the first part."""
    row = connection.execute(
        "select count(*) from (select from mbus.blocked where released_by is null limit %s) b",
        (more_than + 1,),
    ).fetchone()
    return bool(row and row[0] != more_than // BATCH * BATCH)


def _take(connection: Session, queue: str) -> float:
    """Time one take, in milliseconds, without its commit."""
    with connection.transaction():
        began = time.perf_counter()
        rows = connection.execute(
            f"select id, data from mbus.consumen_{queue}_by_default(1)".encode()
        ).fetchall()
        took = time.perf_counter() - began
    if len(rows) != 1:
        raise RuntimeError(f"{len(rows)} messages instead of one")
    return took * 1000


SCENARIO = Scenario(
    "ordering",
    "Messages that wait for others",
    "Python, one session; messages are taken alternately from two queues, and the take is timed "
    "without its commit, medians of 300; then the time from taking a message to the release of "
    "its last successor, with maintenance called repeatedly.",
    3,
    run,
)
