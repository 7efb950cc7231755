"""Run every scenario at every point and write the table."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from postroad.testing import TestServer
from tools.crash_table.page import ENGLISH, RUSSIAN, Row, page
from tools.crash_table.run import Expected, kill, record
from tools.crash_table.scenarios import SCENARIOS, Scenario
from tools.crash_table.world import CALLS, ForkServer, Point, Thread

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"operate": ENGLISH, "ru/operate": RUSSIAN}
# More than any step makes; a step that never ends by itself would go on for ever.
POINTS_MOST = 200


def run(
    names: Sequence[str], points_most: int, store: Path | None, *, has_companion: bool = False
) -> list[Row]:
    """Run the scenarios that the store does not hold yet, and return the rows of all."""
    rows = _stored(store)
    folder = Path(tempfile.mkdtemp(prefix="crash-table-"))
    folder.chmod(0o755)
    (folder / "bin_folder").write_text("")
    server = TestServer(folder)
    server.start()
    fork_server = ForkServer()
    try:
        for scenario in SCENARIOS:
            is_wanted = not names or any(wanted in scenario.name for wanted in names)
            # A companion would do what the start of a server alone has to do.
            is_wanted &= not (has_companion and scenario.is_recovery)
            if not is_wanted or any(row.scenario == scenario.name for row in rows):
                continue
            row = _run_scenario(server, fork_server, scenario, points_most, has_companion)
            rows.append(row)
            if store is not None:
                line = json.dumps([row.scenario, row.points, row.violations])
                with store.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            print(row.scenario, dict(row.points), row.violations or "holds", flush=True)
    finally:
        fork_server.close()
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _run_scenario(
    server: TestServer,
    fork_server: ForkServer,
    scenario: Scenario,
    points_most: int,
    has_companion: bool,
) -> Row:
    row = Row(scenario.name)
    expected = record(server, fork_server, scenario)
    for thread, call in _kinds(scenario, expected):
        for nth in range(1, points_most + 1):
            point = Point(thread, call, nth)
            outcome = kill(
                server, fork_server, scenario, point, expected, has_companion=has_companion
            )
            row.violations += [f"{point}: {text}" for text in outcome.violations]
            if not outcome.was_killed:
                break
            row.points[call] += 1
    return row


def _kinds(scenario: Scenario, expected: Expected) -> Iterator[tuple[Thread, str]]:
    """The threads and kinds of calls that the step was seen to make."""
    if scenario.is_recovery:
        # Its thread for files is not there yet when it is attached to: all are followed.
        for call in sorted({call for _, call in expected.calls}, key=CALLS.index):
            yield "any", call
    else:
        yield from sorted(expected.calls, key=lambda kind: (CALLS.index(kind[1]), kind[0]))


def _stored(store: Path | None) -> list[Row]:
    if store is None or not store.exists():
        return []
    lines = store.read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [Row(name, Counter(points), violations) for name, points, violations in found]


def main() -> int:
    """Run what is asked for; 1 if anything does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="scenarios by part of name")
    parser.add_argument("--points", type=int, default=POINTS_MOST)
    parser.add_argument("--store", type=Path, help="go on from the rows in this file")
    parser.add_argument("--page-only", action="store_true", help="write the page from the store")
    parser.add_argument("--no-page", action="store_true")
    parser.add_argument(
        "--companion", action="store_true", help="a second server goes on; writes no page"
    )
    given = parser.parse_args()
    rows = _stored(given.store)
    if not given.page_only:
        limits = given.only, given.points, given.store
        rows = run(*limits, has_companion=given.companion)
    if not (given.no_page or given.companion):
        for folder, texts in PAGES.items():
            file = DOCS / folder / "exchange-crash-table.md"
            file.write_text(page(rows, texts), encoding="utf-8")
    return 1 if any(row.violations for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
