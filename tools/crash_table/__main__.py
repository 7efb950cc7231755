"""Run every scenario at every point and write the table."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from postroad.cli.rooms import SCHEMAS
from postroad.testing import TestServer
from tools.crash_table.scenarios import SCENARIOS, Scenario, _fetch, _ready
from tools.crash_table.world import Nursery, World

PAGE = Path(__file__).parents[2] / "docs/operate/exchange-crash-table.md"
# File calls happen in the file thread, journal and HTTP sends in the main one.
CALLS = ("write", "fsync", "renameat", "unlinkat", "sendto", "sendmsg")
POINTS_MOST = 40


@dataclass
class Row:
    """What happened in one scenario."""

    scenario: str
    points: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def run_point(
    server: TestServer, nursery: Nursery, scenario: Scenario, call: str, nth: int
) -> tuple[bool, list[str]]:
    """Kill at one point; return whether there was such a point, and what does not hold."""
    with server.clone(*SCHEMAS) as dsn:
        world = World(dsn, nursery, **scenario.settings)
        try:
            world.start()
            given = scenario.before(world)
            world.inject(call, nth)
            result = scenario.during(world, given)
            was_killed = world.kills > 0 or world.disarm()
            world.disarm()
            world.revive()
            scenario.after(world, result if result is not None else given)
            return was_killed, world.violations()
        except AssertionError as failure:
            return True, [f"{type(failure).__name__}: {failure}"]
        finally:
            world.close()


def run_recovery(
    server: TestServer, nursery: Nursery, call: str, nth: int
) -> tuple[bool, list[str]]:
    """Kill the server while it recovers from a kill, then let it recover."""
    with server.clone(*SCHEMAS) as dsn:
        world = World(dsn, nursery)
        try:
            world.start()
            process = _ready(world)
            world.erp_commit(process)
            world.stop()
            serves = world.start(inject=(call, nth))
            was_killed = not serves
            if serves:
                world.stop()
            world.revive()
            path = f"/processes/{process['id']}/commit"
            answer = world.call("erp", "POST", path)
            assert answer == (200, {"status": "OK"}), answer
            _fetch(world)
            return was_killed, world.violations()
        except AssertionError as failure:
            return True, [f"{type(failure).__name__}: {failure}"]
        finally:
            world.close()


def run(
    names: Sequence[str], calls: Sequence[str], points_most: int, store: Path | None
) -> list[Row]:
    """Run the scenarios that the store does not hold yet, and return the rows of all."""
    rows = _stored(store)
    folder = Path(tempfile.mkdtemp(prefix="crash-table-"))
    folder.chmod(0o755)
    (folder / "bin_folder").write_text("")
    server = TestServer(folder)
    server.start()
    nursery = Nursery()
    try:
        for scenario in [*SCENARIOS, None]:
            name = scenario.name if scenario else "recovery itself"
            if names and not any(wanted in name for wanted in names):
                continue
            if any(row.scenario == name for row in rows):
                continue
            row = Row(name)
            rows.append(row)
            for call in calls:
                for nth in range(1, points_most + 1):
                    if scenario is None:
                        was_killed, violations = run_recovery(server, nursery, call, nth)
                    else:
                        was_killed, violations = run_point(server, nursery, scenario, call, nth)
                    row.violations += [f"{call} {nth}: {text}" for text in violations]
                    if not was_killed:
                        break
                    row.points[call] += 1
            if store is not None:
                line = json.dumps([row.scenario, row.points, row.violations])
                with store.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            print(row.scenario, dict(row.points), row.violations or "holds", flush=True)
    finally:
        nursery.close()
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _stored(store: Path | None) -> list[Row]:
    if store is None or not store.exists():
        return []
    lines = store.read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [Row(name, Counter(points), violations) for name, points, violations in found]


def page(rows: Sequence[Row], calls: Sequence[str]) -> str:
    """Write the table."""
    total = sum(sum(row.points.values()) for row in rows)
    broken = sum(len(row.violations) for row in rows)
    lines = [
        "# Crash table of the exchange",
        "",
        "Written by `make crash-table`. The server is killed with SIGKILL, by strace, as it enters",
        "the n-th system call of a kind, once for each n until the step ends without reaching it.",
        "Then it is started anew, the client repeats its call and goes on to the end, and the",
        "invariants I1 to I6 are checked: rows and folders agree, each effect is there once,",
        "replies are visible if and only if the ERP committed, no process stays open, and the",
        "client's repeated calls get the answers of a run without a crash.",
        "",
        f"**{total} kills, {broken} violations.**",
        "",
        "| step | " + " | ".join(f"`{call}`" for call in calls) + " | kills | I1 to I6 |",
        "|---|" + "---:|" * (len(calls) + 1) + "---|",
    ]
    for row in rows:
        numbers = " | ".join(str(row.points[call]) for call in calls)
        verdict = "hold" if not row.violations else "; ".join(row.violations)
        lines.append(f"| {row.scenario} | {numbers} | {sum(row.points.values())} | {verdict} |")
    lines += [
        "",
        "`write`, `fsync`, `renameat`, `unlinkat` are the file system's; `sendto` carries calls to",
        "the journal, `sendmsg` and `write` also the answer to the client.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="scenarios by part of name")
    parser.add_argument("--call", action="append", default=[], help="kinds of system calls")
    parser.add_argument("--points", type=int, default=POINTS_MOST)
    parser.add_argument("--store", type=Path, help="go on from the rows in this file")
    parser.add_argument("--page-only", action="store_true", help="write the page from the store")
    parser.add_argument("--no-page", action="store_true")
    given = parser.parse_args()
    calls = given.call or CALLS
    if given.page_only:
        rows = _stored(given.store)
    else:
        rows = run(given.only, calls, given.points, given.store)
    if not given.no_page:
        PAGE.write_text(page(rows, calls), encoding="utf-8")
    return 1 if any(row.violations for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
