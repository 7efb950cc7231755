"""What became of every job when something was killed: lost, doubled, back after how long."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Fault", "Outcome", "judge"]

BIN_SECONDS = 0.25
# The public harness calls a system recovered at this part of the rate before the fault.
RECOVERED_PART = 0.9

Posted = Iterable[tuple[int, int, float]]
Handled = Iterable[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in seconds of the epoch: when it began, when its cause was over, watched until."""

    name: str
    at: float
    over: float
    until: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The consequences of one fault.

    Attributes:
        outage_seconds: how long the cause lasted: a stopped server, until it accepts sessions.
        doubled: jobs that ran a second time after the fault and before the next one.
        rate_back_seconds: until jobs run at 90 % of the offered rate again; None when not seen.
        last_back_seconds: until the last job posted before the fault has run; None when never.
    """

    name: str
    outage_seconds: float
    doubled: int
    rate_back_seconds: float | None
    last_back_seconds: float | None

    def facts(self) -> dict[str, Any]:
        """Return the figures for results.json."""
        return asdict(self)


def judge(
    posted: Posted, handled: Handled, faults: Sequence[Fault], rate: float
) -> tuple[int, int, list[Outcome]]:
    """Return the number of lost jobs, that of doubled ones, and the outcome of each fault.

    Lost is a job whose posting was confirmed and which never ran. A job that ran although its
    posting was not confirmed is neither: the connection broke before the answer.
    """
    runs: dict[int, list[float]] = {}
    for number, at in handled:
        runs.setdefault(number, []).append(at)
    for times in runs.values():
        times.sort()
    times_of_posting = {
        number: at for first, amount, at in posted for number in range(first, first + amount)
    }
    lost = sum(number not in runs for number in times_of_posting)
    repeats = sorted(at for times in runs.values() for at in times[1:])
    bins = Counter(int(times[0] / BIN_SECONDS) for times in runs.values())
    outcomes = [
        Outcome(
            fault.name,
            fault.over - fault.at,
            bisect_right(repeats, fault.until) - bisect_right(repeats, fault.at),
            _rate_back(bins, fault, rate),
            _last_back(times_of_posting, runs, fault),
        )
        for fault in faults
    ]
    return lost, len(repeats), outcomes


def _rate_back(bins: Counter[int], fault: Fault, rate: float) -> float | None:
    wanted = RECOVERED_PART * rate * BIN_SECONDS
    # Bins before that may be full of what ran before the fault took hold.
    for place in range(int(fault.over / BIN_SECONDS) + 1, int(fault.until / BIN_SECONDS) + 1):
        if bins[place] >= wanted:
            return max(0.0, place * BIN_SECONDS - fault.at)
    return None


def _last_back(
    times_of_posting: dict[int, float], runs: dict[int, list[float]], fault: Fault
) -> float | None:
    last = 0.0
    for number, at in times_of_posting.items():
        if at < fault.at:
            if number not in runs:
                return None
            last = max(last, runs[number][0] - fault.at)
    return last
