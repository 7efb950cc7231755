"""The judge of a soak finds growth, and no growth in noise and at the start."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from proof.soak.samples import Samples, database, disk_megabytes, process, slope

MINUTE = 60.0


def samples(metric: str, *values: float) -> Samples:
    found = Samples()
    for number, value in enumerate(values):
        found.add(number * MINUTE, metric, "a subject", value)
    return found


def test_the_slope_is_the_growth_per_hour() -> None:
    assert slope([(0, 10), (1800, 15), (3600, 20)]) == pytest.approx(10)
    assert slope([(5, 1)]) == 0


@pytest.mark.parametrize(
    ("metric", "step"),
    [("memory", 2.0), ("descriptors", 1.0), ("connections", 1.0), ("log", 0.5)],
)
def test_steady_growth_is_found(metric: str, step: float) -> None:
    grown = samples(metric, *(50 + step * number for number in range(30)))
    [violation] = grown.judge(warm_up=0)
    assert violation.startswith(f"{metric} of a subject grew by ")


def test_growth_of_the_warm_up_and_noise_are_flat() -> None:
    values = [10.0 * number for number in range(10)] + [100 + number % 3 for number in range(30)]
    assert samples("memory", *values).judge(warm_up=10 * MINUTE) == []
    assert samples("memory", *values).judge(warm_up=0) != []


def test_journals_are_not_judged() -> None:
    assert samples("journals", *range(100)).judge(warm_up=0) == []


def test_a_process_a_folder_and_a_database_are_measured(
    empty_database: str, tmp_path: Path
) -> None:
    own = process(os.getpid())
    assert own["memory"] > 1
    with (tmp_path / "log").open("wb") as file:
        assert process(os.getpid())["descriptors"] > own["descriptors"]
        file.write(bytes(3_000_000))
    assert disk_megabytes(tmp_path) == 3
    with psycopg.connect(empty_database) as session:
        found = database(session)
    assert found["connections", "PostgreSQL"] >= 1
    assert found["catalogue", "pg_catalog"] > 1
