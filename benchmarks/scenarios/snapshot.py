"""A snapshot held open under a steady load: nothing that was deleted can be cleaned up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least, at_most
from benchmarks.shapes import PAYLOAD, VISIBILITY_TABLE, claim
from benchmarks.steady import BATCH, Load, Shape, percentile

SECONDS = 120
BASELINE_SECONDS = 60
WINDOWS = 8
WARM_UP_SECONDS = 3


def run(lab: Lab) -> Findings:
    """Measure both shapes one after the other, each under a snapshot of its own."""
    lab.report("warm-up")
    queue = lab.new_queue()
    Load(lab.dsn, bus(queue), WARM_UP_SECONDS, 30).run()

    seconds = lab.scaled(SECONDS, WINDOWS)
    window = seconds / WINDOWS
    lab.report(f"bus, {seconds} s at 5,000 messages a second")
    ours = Load(lab.dsn, bus(queue), seconds, 60)
    with held_snapshot(lab.dsn):
        ours.run()
    lab.drop_queue(queue)

    lab.execute(VISIBILITY_TABLE)
    baseline_seconds = lab.scaled(BASELINE_SECONDS, WINDOWS / 2)
    lab.report(f"visibility timeout, {baseline_seconds} s")
    theirs = Load(lab.dsn, VISIBILITY, baseline_seconds, drain_seconds=0)
    with held_snapshot(lab.dsn):
        theirs.run()
    return _findings(ours, theirs, window)


def bus(queue: str) -> Shape:
    """Post and take by fifty through the bus."""
    return Shape(
        f"select mbus.postn_{queue}(array_fill('{PAYLOAD}'::text, array[{BATCH}]))",
        "select id, extract(epoch from added)::float8"
        f" from mbus.consumen_{queue}_by_default({BATCH})",
    )


VISIBILITY = Shape(
    "insert into visibility (data)"
    f" select * from unnest(array_fill('{PAYLOAD}'::text, array[{BATCH}]))",
    claim(BATCH) + " select c.id, extract(epoch from c.added)::float8 from claimed c",
    "delete from visibility where id = any(%s)",
)


@contextmanager
def held_snapshot(dsn: str) -> Iterator[None]:
    """Hold a snapshot and a transaction id, as a long report or a forgotten session does."""
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select txid_current(), count(*) from pg_class")
        yield
        connection.rollback()


def _windows(load: Load, window: float) -> list[dict[str, float]]:
    count = max(1, round(load.seconds / window))
    buckets: list[list[float]] = [[] for _ in range(count)]
    for each in load.deliveries:
        # Delivered late is counted where the load ended, not forgotten.
        buckets[min(count - 1, int(each.second / window))].append(each.latency * 1000)
    return [
        {
            "from_second": number * window,
            "messages": len(bucket),
            "p50_ms": round(percentile(bucket, 0.5), 3),
            "p99_ms": round(percentile(bucket, 0.99), 3),
        }
        for number, bucket in enumerate(buckets)
    ]


def _findings(ours: Load, theirs: Load, window: float) -> Findings:
    bus_windows, baseline_windows = _windows(ours, window), _windows(theirs, window)
    growth = bus_windows[-1]["p99_ms"] / bus_windows[0]["p99_ms"]
    is_complete = sorted(ours.ids) == sorted(set(ours.ids)) and len(ours.ids) == ours.posted
    undelivered = theirs.posted - len(theirs.ids)
    return Findings(
        [
            Figure(
                "snapshot held, 5,000 msg/s: p99 of the last window beside the first",
                f"{_ends(bus_windows)} ms",
                f"visibility timeout in {theirs.seconds:.0f} s: {_ends(baseline_windows)} ms, "
                f"{undelivered:,} of {theirs.posted:,} not delivered at the end",
                growth,
                "x",
                at_most(2),
            ),
            Figure(
                "snapshot held: nothing lost, nothing twice",
                f"{ours.posted:,} posted, {len(ours.ids):,} delivered",
                "",
                float(is_complete),
                "",
                at_least(1),
            ),
        ],
        {"window_seconds": window, "bus": bus_windows, "visibility timeout": baseline_windows},
    )


def _ends(windows: list[dict[str, float]]) -> str:
    first, last = windows[0], windows[-1]
    return (
        f"p50 {first['p50_ms']:,.1f} to {last['p50_ms']:,.1f}, "
        f"p99 {first['p99_ms']:,.1f} to {last['p99_ms']:,.1f}"
    )


SCENARIO = Scenario(
    "snapshot",
    "A snapshot held open",
    "Python, one producer and two consumers, batches of 50, 5,000 messages a second; consumers "
    "pause 5 ms when there is nothing. Latency is measured from `added` to the arrival of the "
    "rows at the consumer, in eight windows of 15 s. 3 s of warm-up before the snapshot. The "
    "visibility timeout runs afterwards, alone, for 60 s only, because it does not keep up.",
    3,
    run,
)
