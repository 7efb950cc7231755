"""Cells: which load an arm is measured under."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["CLEAN", "Cell", "parse_cells"]

SATURATING = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """In flight, milliseconds of work, and jobs offered per second (0: as many as are handled)."""

    in_flight: int
    work_ms: float
    rate: int = SATURATING

    @property
    def name(self) -> str:
        """The name in tables and on the command line: `64/1ms`, `64/1ms/800`."""
        work = f"{self.work_ms / 1000:g}s" if self.work_ms >= 1000 else f"{self.work_ms:g}ms"
        return f"{self.in_flight}/{work}" + (f"/{self.rate}" if self.rate else "")


CLEAN = (
    Cell(16, 0),
    Cell(16, 1),
    Cell(64, 1),
    Cell(256, 1),
    Cell(256, 1000),
    Cell(64, 1, 800),
)


def parse_cells(text: str) -> list[tuple[str, Cell]]:
    """Read `arm/in flight/work[/rate]`, comma-separated: `lease/64/1ms,pgmq/16/0ms/800`.

    Raises ValueError.
    """
    return [_parse(part.strip()) for part in text.split(",") if part.strip()]


def _parse(text: str) -> tuple[str, Cell]:
    found = re.fullmatch(r"([^/]+)/(\d+)/(\d+(?:\.\d+)?)(ms|s)(?:/(\d+))?", text)
    if found is None:
        raise ValueError(f"no cell {text!r}; write arm/in flight/work, as in lease/64/1ms")
    arm, in_flight, work, unit, rate = found.groups()
    factor = 1000 if unit == "s" else 1
    return arm, Cell(int(in_flight), float(work) * factor, int(rate or SATURATING))
