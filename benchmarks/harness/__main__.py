"""Quick trials: `python -m benchmarks.harness --cells lease/64/1ms`; see README.md."""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.arms import PEERS, Arm, arm_named, ours
from benchmarks.harness.cells import Cell, parse_cells
from benchmarks.harness.driver import Measured, Place, measure, open_place
from benchmarks.harness.phases import RATE, run_faults, run_pressure
from benchmarks.peers.install import NotInstalled

COLUMNS = (
    ("jobs/s", "rate", "{:,.0f}"),
    ("p50 ms", "p50_ms", "{:.1f}"),
    ("p95 ms", "p95_ms", "{:.1f}"),
    ("p99 ms", "p99_ms", "{:.1f}"),
    ("server ms/1,000", "server_ms_per_1000", "{:.1f}"),
    ("client ms/1,000", "client_ms_per_1000", "{:.1f}"),
    ("WAL bytes/job", "wal_bytes_per_job", "{:,.0f}"),
    ("dead rows", "dead_rows", "{:,}"),
    ("multixacts/10,000", "multixacts_per_10000", "{:.1f}"),
    ("sessions", "sessions", "{}"),
)


def main() -> int:
    """Measure the chosen cells and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness", description=__doc__)
    parser.add_argument("--cells", default="lease/64/1ms,transactional/64/1ms")
    parser.add_argument("--trees", default="", help="two or more source trees, comma-separated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=6, help="measured per cell and round")
    parser.add_argument("--phases", default="", help="pressure, faults or both, instead of cells")
    parser.add_argument("--warm", type=int, default=2, help="seconds of load before that")
    options = parser.parse_args()
    try:
        cells = parse_cells(options.cells)
    except ValueError as error:
        parser.error(str(error))
    trees = [Path(each).resolve() for each in options.trees.split(",") if each]
    for tree in trees:
        if not (tree / "src" / "postroad").is_dir():
            parser.error(f"no source tree in {tree}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open_place() as place:
        for name, cell in cells:
            arms = _arms(name, trees)
            if options.phases:
                for arm in arms:
                    _run_phases(place, arm, cell, options)
            elif arms:
                _print(cell, _rounds(place, arms, cell, options))
    return 0


def _run_phases(place: Place, arm: Arm, cell: Cell, options: argparse.Namespace) -> None:
    """Print the figures of the phases; a cell without a rate gets that of the full run."""
    load = cell if cell.rate else replace(cell, rate=RATE)
    for name, run in (("pressure", run_pressure), ("faults", run_faults)):
        if name in options.phases:
            found = run(place, arm, load, options.seconds)
            print(json.dumps({arm.name: found}, indent=2), flush=True)


def _arms(name: str, trees: list[Path]) -> list[Arm]:
    """Return one arm per tree; for a peer, which is of no tree, that one; none if it is absent."""
    try:
        if name in PEERS or not trees:
            return [arm_named(name)]
    except NotInstalled as error:
        print(f"{name} is absent: {error}\n")
        return []
    return [ours(name, tree, f"@{tree.name}") for tree in trees]


def _rounds(
    place: Place, arms: list[Arm], cell: Cell, options: argparse.Namespace
) -> dict[str, list[Measured]]:
    """Measure the arms alternately, each round in the opposite order of the one before."""
    found: dict[str, list[Measured]] = {arm.name: [] for arm in arms}
    for number in range(options.rounds):
        for arm in arms if number % 2 == 0 else reversed(arms):
            found[arm.name].append(measure(place, arm, cell, options.warm, options.seconds))
    return found


def _print(cell: Cell, found: dict[str, list[Measured]]) -> None:
    """Print medians, and from the second arm on the ratio of each median to the first arm's."""
    lines = [[cell.name, *(title for title, _, _ in COLUMNS)]]
    first: list[float] = []
    for name, measured in found.items():
        medians = [
            float(statistics.median(getattr(each, column) for each in measured))
            for _, column, _ in COLUMNS
        ]
        shown = [
            template.format(round(value) if "," in template or template == "{}" else value)
            for value, (_, _, template) in zip(medians, COLUMNS, strict=True)
        ]
        lines.append([name, *shown])
        if first:
            ratios = [
                f"x{value / base:.2f}" if base else "-"
                for value, base in zip(medians, first, strict=True)
            ]
            lines.append(["", *ratios])
        first = first or medians
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))
    print(flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
