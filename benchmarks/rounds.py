"""Short alternating rounds: what disturbs the machine disturbs every arm alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from benchmarks.lab import Lab

__all__ = ["Rates", "interleave", "median", "ratio", "thousands"]

Rates = dict[str, list[float]]


def interleave(lab: Lab, rounds: int, arms: Mapping[str, Callable[[], float]]) -> Rates:
    """Run every arm in every round, in turns forwards and backwards; return all rates by arm."""
    rates: Rates = {name: [] for name in arms}
    for number in range(rounds):
        order = list(arms) if number % 2 == 0 else list(arms)[::-1]
        for name in order:
            lab.report(f"round {number + 1} of {rounds}: {name}")
            rates[name].append(arms[name]())
            lab.maintainer.check()
    return rates


def median(rates: Rates, name: str) -> float:
    """Return the median rate of an arm."""
    return statistics.median(rates[name])


def ratio(rates: Rates, name: str, beside: str) -> float:
    """Return the median over the rounds of the ratio within a round."""
    return statistics.median(
        ours / theirs for ours, theirs in zip(rates[name], rates[beside], strict=True)
    )


def thousands(rate: float, unit: str = "/s") -> str:
    """Write a rate for people."""
    if rate >= 100_000:
        return f"{rate / 1000:,.0f}k{unit}"
    return f"{rate / 1000:,.1f}k{unit}" if rate >= 10_000 else f"{rate:,.0f}{unit}"
