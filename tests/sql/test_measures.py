"""Histograms that workers have measured."""

from __future__ import annotations

import random
from bisect import bisect_left
from datetime import timedelta
from statistics import quantiles

import pytest

from postroad.bus.measures import BOUNDS
from tests.sql.calls import Connection, one, rows, shift_clock

MEASURE = "select mbus.measure('q', %s, %s, %s, %s)"


@pytest.mark.both_versions
def test_bounds_are_those_of_the_workers_and_quantiles_lie_in_their_bucket(
    connection: Connection,
) -> None:
    for kind, bounds in BOUNDS.items():
        assert tuple(one(connection, "select mbus._bounds(%s)", kind)) == bounds
        counts = [0] * (len(bounds) + 1)
        values = [random.Random(seed).choice(bounds) * 0.9 for seed in range(500)]
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        query = "select mbus._quantile(%s, %s::bigint[], %s)"
        found = one(connection, query, kind, counts, 0.95)
        exact = quantiles(values, n=20)[-1]
        assert abs(bisect_left(bounds, found) - bisect_left(bounds, exact)) <= 1
        assert one(connection, query, kind, [0] * len(counts), 0.5) is None
        assert one(connection, query, kind, [0] * len(bounds) + [4], 0.5) == bounds[-1]


@pytest.mark.both_versions
def test_hours_are_kept_for_a_week_and_the_total_forever(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q')")
    values = ("default", ["handled", "wait"], [1] * 46, [2.5, 4.0])
    for _ in range(3):
        connection.execute(MEASURE, values)
    shift_clock(connection, timedelta(days=8))
    connection.execute(MEASURE, values)
    found = rows(
        connection,
        "select kind, isfinite(since), counts[23], total from mbus.measures order by 1, 2",
    )
    assert found == [
        ("handled", False, 4, 10.0), ("handled", True, 1, 2.5),
        ("wait", False, 4, 16.0), ("wait", True, 1, 4.0),
    ]  # fmt: skip
    assert one(connection, "select handled from mbus.handling") == 23


@pytest.mark.both_versions
def test_quantiles_of_each_step_are_those_of_its_hours(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q'), mbus.create_consumer('q', 'second')")

    def measure(consumer: str, kind: str, bound: float) -> None:
        counts = [0] * 23
        # All values are in the bucket below the bound.
        counts[BOUNDS[kind].index(bound)] = 10
        connection.execute(MEASURE, (consumer, [kind], counts, [10 * bound]))

    measure("default", "wait", 1)
    measure("default", "handled", 10)
    shift_clock(connection, timedelta(hours=3))
    measure("default", "handled", 60)
    measure("second", "handled", 300)
    # Neither failures nor batches belong to it.
    measure("default", "failed", 3600)
    measure("default", "batch", 7)

    def latency(step: str, *names: str) -> list[tuple[object, ...]]:
        call = f"mbus.latency(mbus.now() - interval '9 hours', '{step}' {', %s' * len(names)})"
        shown = "wait_median, wait_high, handling_median, handling_high"
        return rows(connection, f"select {shown} from {call} order by at", *names)

    assert latency("1 hour", "q", "default") == [(0.75, 0.975, 7.5, 9.75), (None, None, 45, 58.5)]
    # Of both consumers: half of the second step's handlers took at most a minute.
    both = latency("1 hour", "q")
    assert both[0] == (0.75, 0.975, 7.5, 9.75)
    assert both[1] == (None, None, 60, 282)
    assert latency("100000 days") == [(0.75, 0.975, 45, 273)]
    assert latency("1 hour", "other") == []
