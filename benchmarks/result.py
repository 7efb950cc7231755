"""What a scenario is and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.lab import Lab

__all__ = ["Figure", "Findings", "Scenario", "at_least", "at_most"]

Bar = tuple[Literal[">=", "<="], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: what was measured, beside what, and the bar that it must clear.

    `judged` is the number that the bar is about; without a bar the line is information.
    """

    what: str
    ours: str
    beside: str = ""
    judged: float | None = None
    unit: str = ""
    bar: Bar | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the bar is cleared; None without a bar."""
        if self.bar is None or self.judged is None:
            return None
        sense, limit = self.bar
        return self.judged >= limit if sense == ">=" else self.judged <= limit


@dataclass(slots=True)
class Findings:
    """The figures of a scenario, and the raw numbers that they and the plots were made from."""

    figures: list[Figure] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named measurement; `steps` is how often it reports progress."""

    name: str
    title: str
    method: str
    steps: int
    run: Callable[[Lab], Findings]


def at_least(limit: float) -> Bar:
    """Make a bar that is cleared from above."""
    return (">=", limit)


def at_most(limit: float) -> Bar:
    """Make a bar that is cleared from below."""
    return ("<=", limit)
