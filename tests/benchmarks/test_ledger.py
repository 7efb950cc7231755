"""Lost and doubled jobs are counted from what was confirmed and what has run."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.harness.contract import Jobs, Settings, read_ledger
from benchmarks.harness.ledger import Fault, judge

FAULT = Fault("kill", 100.0, 100.5, 110.0)
RATE = 40


def steady(first: int, seconds: range) -> list[tuple[int, float]]:
    """Ten jobs in each quarter of a second, as many as are offered."""
    places = [second + quarter / 4 for second in seconds for quarter in range(4)]
    return [
        (first + place * 10 + each, at) for place, at in enumerate(places) for each in range(10)
    ]


def test_a_confirmed_job_that_never_ran_is_lost() -> None:
    lost, doubled, outcomes = judge([(1, 3, 99.0)], [(1, 99.5), (3, 99.6)], [FAULT], RATE)
    assert (lost, doubled) == (1, 0)
    assert outcomes[0].last_back_seconds is None


def test_a_job_without_confirmation_is_not_lost() -> None:
    assert judge([], [(7, 99.0)], [FAULT], RATE)[:2] == (0, 0)


def test_a_job_that_ran_twice_is_doubled_by_the_fault_before() -> None:
    second = Fault("stop", 110.0, 112.0, 120.0)
    handled = [(1, 99.0), (1, 101.0), (2, 99.0), (2, 99.1)]
    lost, doubled, outcomes = judge([(1, 2, 98.0)], handled, [FAULT, second], RATE)
    assert (lost, doubled) == (0, 2)
    assert [each.doubled for each in outcomes] == [1, 0]


def test_the_rate_is_back_when_jobs_run_as_fast_as_they_are_offered() -> None:
    handled = [*steady(0, range(90, 100)), (5000, 101.1), *steady(10_000, range(103, 110))]
    (outcome,) = judge([], handled, [FAULT], RATE)[2]
    assert outcome.rate_back_seconds == 3.0


def test_a_rate_that_does_not_come_back_is_never() -> None:
    (outcome,) = judge([], steady(0, range(90, 100)), [FAULT], RATE)[2]
    assert outcome.rate_back_seconds is None


def test_the_last_job_from_before_the_fault_ends_the_recovery() -> None:
    handled = [(1, 99.0), (2, 107.5), (3, 109.0)]
    (outcome,) = judge([(1, 2, 98.0), (3, 1, 105.0)], handled, [FAULT], RATE)[2]
    assert outcome.last_back_seconds == 7.5


def test_a_handled_job_is_in_the_ledger_of_its_process(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": "", "JOB_WORK_MS": "0", "LEDGER_FOLDER": str(tmp_path)}
    jobs = Jobs(Settings.read(environment))
    asyncio.run(jobs('{"seq": 5, "at": 0}'))
    # A killed process may leave half a record.
    (ledger,) = tmp_path.glob("handled-*")
    ledger.write_bytes(ledger.read_bytes() + b"half")
    posted, handled = read_ledger(tmp_path)
    assert (posted, [number for number, _ in handled], jobs.completed) == ([], [5], 1)
