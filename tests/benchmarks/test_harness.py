"""The harness measures what it claims, at the smallest scale."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.harness.arms import OURS, ROOT, ours
from benchmarks.harness.cells import Cell, parse_cells
from benchmarks.harness.driver import (
    Adapter,
    Place,
    address_of,
    environment_of,
    fresh_database,
    measure,
    open_place,
)
from benchmarks.harness.histogram import Histogram
from benchmarks.harness.phases import run_faults

METRICS = {
    "claim_p50_ms",
    "claim_p95_ms",
    "claim_p99_ms",
    "enqueue_rate",
    "completion_rate",
    "queue_depth",
}


@pytest.fixture(scope="module")
def place() -> Place:
    with open_place() as opened:
        yield opened


def test_a_percentile_is_exact_to_three_digits() -> None:
    histogram = Histogram()
    for value in range(1, 10_001):
        histogram.add(value / 10)
    for part in (0.5, 0.95, 0.99):
        (found,) = histogram.percentiles(part)
        assert found == pytest.approx(part * 1000, rel=0.001)


def test_a_histogram_survives_json_and_merging() -> None:
    one, other = Histogram(), Histogram()
    one.add(3)
    other.add(5000)
    one.merge(Histogram(map(tuple, json.loads(json.dumps(other.items())))))
    assert len(one) == 2
    assert one.percentiles(0.5, 1.0) == pytest.approx([3, 5000], rel=0.001)


def test_nothing_counted_is_no_latency() -> None:
    assert Histogram().percentiles(0.5, 0.99) == [0, 0]


def test_cells_are_read_from_text() -> None:
    assert parse_cells("lease/64/1ms, pgmq/16/1s/800") == [
        ("lease", Cell(64, 1)),
        ("pgmq", Cell(16, 1000, 800)),
    ]
    assert Cell(16, 1000, 800).name == "16/1s/800"


@pytest.mark.parametrize("text", ["lease", "lease/64", "lease/64/1", "lease/a/1ms"])
def test_a_cell_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no cell"):
        parse_cells(text)


@pytest.mark.parametrize("name", ["rent", "lease+", "lease*x"])
def test_an_unknown_arm_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no arm"):
        ours(name)


@pytest.mark.parametrize("mode", OURS)
def test_the_adapter_follows_the_contract(mode: str, place: Place) -> None:
    environment = {**environment_of(Cell(4, 1, 200), 0.2), "SAMPLE_DETAIL": "0"}
    with fresh_database(place) as database:
        adapter = Adapter(ours(mode), address_of(place, database), environment)
        try:
            descriptor = adapter.wait_for("descriptor", 60)
            found: dict[str, float] = {}
            while not (set(found) >= METRICS and found["completion_rate"] > 0):
                sample = adapter.wait_for("adapter", 20)
                found[sample["metric"]] = sample["value"]
        finally:
            adapter.stop()
    manifest = json.loads((ROOT / "benchmarks/harness/adapter.json").read_text(encoding="utf-8"))
    assert set(manifest["event_tables"]) <= set(descriptor["event_tables"])
    assert descriptor["db_name"] == database
    assert found["claim_p50_ms"] > 0
    assert adapter.process.returncode == 0


@pytest.mark.parametrize("mode", OURS)
def test_a_cell_is_measured(mode: str, place: Place) -> None:
    # Several seconds: on a busy machine, one may pass without a job.
    measured = measure(place, ours(mode), Cell(4, 1), 1, 4)
    assert measured.jobs > 0
    assert 0 < measured.p50_ms <= measured.p95_ms <= measured.p99_ms
    assert measured.server_ms_per_1000 > 0
    assert measured.wal_bytes_per_job > 0
    assert measured.sessions >= 2


@pytest.mark.skipif(not os.environ.get("POSTROAD_STRESS"), reason="takes half a minute")
@pytest.mark.parametrize("mode", OURS)
def test_no_fault_loses_a_job(mode: str, place: Place) -> None:
    found = run_faults(place, ours(mode), Cell(16, 1, 200), 2)
    assert found["posted"] > 0
    assert found["lost"] == 0
    # A leased job whose worker was killed before its ack runs again.
    assert mode == "lease" or found["doubled"] == 0


def test_a_tree_is_measured_from_its_own_source() -> None:
    arm = ours("lease", Path("/elsewhere"), "@elsewhere")
    assert arm.environment["PYTHONPATH"].split(":")[0] == "/elsewhere/src"
    assert arm.is_ours
