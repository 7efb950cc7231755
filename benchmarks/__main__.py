"""Command line of the benchmarks: `python -m benchmarks`, or `make bench`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import plots, report, store
from benchmarks.lab import CONFIGURATION, open_lab, open_server
from benchmarks.machine import busy_percent, commit, machine, today
from benchmarks.result import Scenario
from benchmarks.scenarios import SCENARIOS
from postroad.postgres import EmbeddedServer

ROOT = Path(__file__).parents[1]
DOCUMENTED = ROOT / "docs" / "benchmarks"
# A shrunken run is for trying things out; its figures are not for the documentation.
TRIED = ROOT / ".cache" / "benchmarks"


def main() -> int:
    """Measure the chosen scenarios and write the report; 1 when a bar was missed at full scale."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(names)}")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the load; default 1")
    parser.add_argument("--output", type=Path, help="folder of the report")
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name] or names
    unknown = set(chosen) - set(names)
    if unknown:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    folder: Path = options.output or (DOCUMENTED if options.scale == 1 else TRIED)
    folder.mkdir(parents=True, exist_ok=True)

    # A terminated run stops its server and removes its folder, like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in chosen]
    console = Console()
    results = _measure(scenarios, folder, options.scale, console)
    _print(console, results)
    console.print(f"report: {folder / 'README.md'}")
    missed = [
        figure
        for scenario in scenarios
        for figure in results["scenarios"][scenario.name]["figures"]
        if figure["is_met"] is False
    ]
    return 1 if missed and options.scale == 1 else 0


def _measure(
    scenarios: list[Scenario], folder: Path, scale: float, console: Console
) -> dict[str, Any]:
    file = folder / "results.json"
    stored = store.read(file)
    progress = Progress(
        TextColumn("{task.fields[scenario]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
    )
    with progress, open_server() as server:
        stored["machine"] = machine(_version(server))
        stored["configuration"] = CONFIGURATION
        task = progress.add_task("", total=sum(each.steps for each in scenarios), scenario="")
        completed = 0
        for scenario in scenarios:
            steps = iter(range(scenario.steps))

            def step(text: str, steps: Any = steps, first: int = completed) -> None:
                progress.update(task, completed=first + next(steps), description=text)

            progress.update(task, scenario=scenario.name)
            busy = busy_percent()
            began = time.monotonic()
            with open_lab(server, f"bench_{scenario.name}", scale, step, ROOT) as lab:
                findings = scenario.run(lab)
            stored["scenarios"][scenario.name] = store.entry(
                scenario,
                findings,
                lab.maintainer.tally,
                date=today(),
                commit=commit(ROOT),
                scale=scale,
                seconds=time.monotonic() - began,
                busy_percent=busy,
            )
            completed += scenario.steps
            progress.update(task, completed=completed, description="")
            # Written after each scenario: an interrupted run keeps what it has.
            _write(file, stored)
    return stored


def _write(file: Path, stored: dict[str, Any]) -> None:
    order = [scenario.name for scenario in SCENARIOS]
    known = {name: each for name, each in stored["scenarios"].items() if name in order}
    stored["scenarios"] = dict(sorted(known.items(), key=lambda item: order.index(item[0])))
    stored["missing"] = [name for name in order if name not in known]
    store.write(file, stored)
    for name, scenario in stored["scenarios"].items():
        plots.draw(file.parent, name, scenario)
    report.write_report(file.parent, stored)


def _version(server: EmbeddedServer) -> str:
    with psycopg.connect(server.dsn("postgres")) as connection:
        row = connection.execute("show server_version").fetchone()
    return str(row[0]) if row else "unknown"


def _print(console: Console, results: dict[str, Any]) -> None:
    table = Table("what", "measured", "beside", "result", "met")
    for row in report.summary(results):
        table.add_row(*(cell.replace("**", "") for cell in row))
    console.print(table)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; what was measured before is kept")
