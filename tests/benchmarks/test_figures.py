"""The scenario's figures and tables are made from whatever could be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.harness.driver import Measured
from benchmarks.report import _own_table
from benchmarks.scenarios import held
from benchmarks.scenarios.harness import MANY_WORKERS, _figures, _tables


def measured(rate: int, server: float = 10, p99: float = 5) -> Measured:
    return Measured(rate, 1.0, 1, 2, p99, server, 10, 600, 0, 0, 7)


def cells(**rates: int) -> Any:
    arms = {name: measured(rate) for name, rate in rates.items()}
    steady = {**arms, MANY_WORKERS: measured(1)} if arms else {}
    return {"16/1ms": arms, "64/1ms": steady, "256/1ms": arms, "64/1ms/800": arms}


def verdicts(found: Any) -> dict[str, bool | None]:
    return {figure.what.removeprefix("harness: "): figure.is_met for figure in found}


def test_nothing_measured_gives_no_figure() -> None:
    assert _figures({}, {}, {}) == []


def test_lease_is_ranked_among_job_queues_only() -> None:
    found = verdicts(_figures(cells(lease=300, pgmq=200, awa=10, pgque=9_000), {}, {}))
    assert found["lease beside the best job queue, 64 in flight, 1 ms of work"] is True
    found = verdicts(_figures(cells(lease=250, pgmq=200, pgque=9_000), {}, {}))
    assert found["lease beside the best job queue, 16 in flight, 1 ms of work"] is True
    assert found["lease beside the best job queue, 64 in flight, 1 ms of work"] is False


def test_a_lost_job_misses_the_bar_and_a_doubled_one_in_transactions_too() -> None:
    faults = {
        name: {"lost": lost, "doubled": 1, "posted": 9}
        for name, lost in (("lease", 0), ("transactional", 1))
    }
    found = verdicts(_figures({}, {}, faults))
    assert found["lease, jobs lost by three faults"] is True
    assert found["lease, jobs done twice"] is None
    assert found["transactional, jobs lost by three faults"] is False
    assert found["transactional, jobs done twice"] is False


def test_an_absent_peer_is_in_the_table_with_its_reason() -> None:
    raw: dict[str, Any] = {"clean": {}, "pressure": {}, "faults": {}, "troubles": []}
    tables = _tables({**raw, "shapes": {"lease": "by default"}, "absent": {"pgque": "no SQL"}})
    text = "\n".join(map(_own_table, tables))
    assert "| lease | by default |" in text
    assert "| pgque | absent: no SQL |" in text


def test_a_held_snapshot_is_judged_and_drawn(tmp_path: Path) -> None:
    windows = [{"messages": 10, "p50_ms": 1.0, "p99_ms": late} for late in (0.0, 2.0, 4.0)]
    found = {"posted": 30, "handled": 30, "is_twice": False, "windows": windows}
    samples: dict[str, Any] = {"cpu_seconds": {"lease": [0.0, 0.1, 0.1]}, "bytes": [8, 9, 9]}
    late, cost, complete = held._figures("lease", found, samples)
    assert (late.is_met, cost.is_met, complete.is_met) == (False, False, True)
    raw = {"seconds": 60.0, "kinds": {"lease": found}, **samples, "dead": [1, 2, 3]}
    plots.draw(tmp_path, "held", {"title": "A snapshot held for minutes", "raw": raw})
    assert (tmp_path / "held.svg").is_file()
