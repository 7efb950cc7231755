"""All orders of the statements of two and three sessions, on a real PostgreSQL.

`python -m proof.interleavings` runs the scenarios and prints what it finds; `make proof
ONLY=interleavings` also writes the page. Words after `--` of either: names of scenarios, and
`--postgres=FOLDER` for the programs of another version.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroad.cli.components import SCHEMAS
from postroad.testing import TestServer
from postroad.testing.run_folder import close_run_folder, name_run_folder, run_folder
from proof.interleavings.bridge import BRIDGE_SCENARIOS
from proof.interleavings.exchange import EXCHANGE_SCENARIOS
from proof.interleavings.explorer import Exploration, Explorer
from proof.interleavings.scenarios import BUS_SCENARIOS
from proof.options import Options
from proof.report import Report, Table

__all__ = ["SCENARIOS", "run", "running_server"]

SCENARIOS = (*BUS_SCENARIOS, *BRIDGE_SCENARIOS, *EXCHANGE_SCENARIOS)
QUICK_RUNS = 100
FULL_RUNS = 3000
# Divided among the scenarios, those that end early leave their time to others.
QUICK_SECONDS = 150.0


@contextmanager
def running_server(bin_folder: Path | None = None) -> Iterator[TestServer]:
    """Run a server for the time of an exploration."""
    name_run_folder()
    server = TestServer.of_run(run_folder(), bin_folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        close_run_folder()


def run(options: Options) -> Report:
    """Explore the scenarios and report how many runs there were, and what was violated."""
    names = {word for word in options.arguments if not word.startswith("--")}
    folders = [word.removeprefix("--postgres=") for word in options.arguments if "=" in word]
    limit = FULL_RUNS if options.is_full else QUICK_RUNS
    found: list[Exploration] = []
    seconds = options.seconds or (math.inf if options.is_full else QUICK_SECONDS)
    deadline = time.monotonic() + seconds
    with running_server(Path(folders[0]) if folders else None) as server:
        template = server.template(*SCHEMAS)
        chosen = [scenario for scenario in SCENARIOS if not names or scenario.name in names]
        for number, scenario in enumerate(chosen):
            share = (deadline - time.monotonic()) / (len(chosen) - number)
            explorer = Explorer(scenario, lambda: server.dsn(server.create(template)))
            until = time.monotonic() + max(0.0, share)
            found.append(explorer.explore(limit, options.seed, on_run=_show, until=until))
            sys.stdout.write(f"\r{_line(found[-1])}\n")
        major = server.major
    return _report(found, major, len(SCENARIOS) - len(found))


def _show(exploration: Exploration) -> None:
    if exploration.runs % 10 == 0 and sys.stdout.isatty():
        sys.stdout.write(f"\r{_line(exploration)}")
        sys.stdout.flush()


def _line(found: Exploration) -> str:
    of = "all" if found.is_complete else f"of about {found.estimate:,.0f}"
    return (
        f"{found.scenario:16} {found.runs:6} runs ({of}), {found.blocked_runs} with waits,"
        f" {found.deadlocks} deadlocks, {len(found.violations)} violations"
    )


def _report(found: list[Exploration], major: int, missing: int) -> Report:
    rows = tuple(
        (
            one.title,
            f"{one.runs:,}",
            "all" if one.is_complete else f"of about {one.estimate:,.0f}",
            f"{one.blocked_runs:,}",
            str(one.deadlocks),
            str(len(one.violations)),
        )
        for one in found
    )
    violations = tuple(
        f"{one.scenario}: {'; '.join(verdict.violations)}. Steps: {', '.join(verdict.steps)}."
        f" Choices: {' '.join(map(str, verdict.choices))}"
        for one in found
        for verdict in one.violations
    )
    limits = [
        "A function is one step: what happens inside it is interleaved with another session"
        " only where it waits for a lock.",
        "Of scenarios with more orders than the limit, distinct random ones were run.",
    ]
    if missing:
        limits.append(f"{missing} scenarios were left out.")
    return Report(
        title="Interleavings",
        introduction=(
            "Two or three sessions call the functions of the bus, the bridge and the exchange."
            " Their statements run in every order, with commits and rollbacks before their time,"
            " and each answer and the state at the end is compared with a model. A step that waits"
            " for a lock stays under way while the others continue."
        ),
        facts=(
            ("PostgreSQL", str(major)),
            ("scenarios", str(len(found))),
            ("interleavings", f"{sum(one.runs for one in found):,}"),
            ("with waits for locks", f"{sum(one.blocked_runs for one in found):,}"),
            ("deadlocks, repeated", str(sum(one.deadlocks for one in found))),
        ),
        tables=(
            Table(
                "Scenarios",
                ("scenario", "interleavings", "", "with waits", "deadlocks", "violations"),
                rows,
            ),
        ),
        violations=violations,
        limits=tuple(limits),
    )
