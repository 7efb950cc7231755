"""Take from queues with a small, a large and a huge backlog."""

from __future__ import annotations

import statistics
import time

import psycopg

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_most
from benchmarks.shapes import PAYLOAD

BACKLOGS = (10_000, 300_000, 3_000_000)
ROUNDS = 10
# Times per round: a few thousand messages in all, so that 10,000 stays a backlog.
TAKES = {1: 50, 100: 5}


def run(lab: Lab) -> Findings:
    """Fill three queues, then take from them in turns."""
    queues = {}
    for backlog in BACKLOGS:
        lab.report(f"filling {backlog:,}")
        queues[backlog] = lab.new_queue()
        array = f"array_fill('{PAYLOAD}'::text, array[1000])"
        lab.pgbench.times(
            f"select cardinality(mbus.postn_{queues[backlog]}({array}));",
            clients=1,
            each=lab.scaled(backlog / 1000, 7),
        )
    lab.checkpoint()
    lab.report("taking in turns")
    timings: dict[int, dict[int, list[float]]] = {
        amount: {backlog: [] for backlog in BACKLOGS} for amount in TAKES
    }
    with psycopg.connect(lab.dsn, prepare_threshold=0) as connection:
        for number in range(ROUNDS + 1):
            for backlog, queue in queues.items():
                for amount, times in TAKES.items():
                    taken = [_take(connection, queue, amount) for _ in range(times)]
                    # The first round warms caches and plans up.
                    if number > 0:
                        timings[amount][backlog] += taken
    return _findings(timings)


def _take(connection: psycopg.Connection[tuple[object, ...]], queue: str, amount: int) -> float:
    """Time the take alone, in milliseconds: a commit's fsync would hide what differs."""
    statement = f"select id, data from mbus.consumen_{queue}_by_default({amount})".encode()
    connection.execute("begin")
    began = time.perf_counter()
    rows = connection.execute(statement).fetchall()
    took = time.perf_counter() - began
    connection.execute("commit")
    if len(rows) != amount:
        raise RuntimeError(f"{len(rows)} messages instead of {amount}")
    return took * 1000


def _findings(timings: dict[int, dict[int, list[float]]]) -> Findings:
    figures = []
    medians: dict[str, dict[str, float]] = {}
    for amount, by_backlog in timings.items():
        middle = {backlog: statistics.median(taken) for backlog, taken in by_backlog.items()}
        medians[str(amount)] = {f"{backlog}": value for backlog, value in middle.items()}
        figures.append(
            Figure(
                f"take({amount}) at a backlog of 10k, 300k, 3M: slowest to fastest",
                " / ".join(f"{value:.3f}" for value in middle.values()) + " ms",
                "",
                max(middle.values()) / min(middle.values()),
                "x",
                at_most(1.3),
            )
        )
    return Findings(figures, {"median_ms": medians})


SCENARIO = Scenario(
    "backlog",
    "Take from a long queue",
    "Python, one session; messages are taken alternately from three queues, and only the take is "
    "timed, without its commit; medians of 500 take(1) and 50 take(100) each, after one round of "
    "warm-up.",
    4,
    run,
)
