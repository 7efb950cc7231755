"""The page of the results, in English and Russian."""

from __future__ import annotations

import textwrap
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.crash_table.scenarios import SCENARIOS
from tools.crash_table.world import CALLS

__all__ = ["ENGLISH", "RUSSIAN", "Row", "page"]

ABOVE = """
Written by `make crash-table`. Each step is first run under strace without a fault, to record which
system calls each thread makes. Then strace kills the server with SIGKILL as it enters the n-th call
of a kind, once for each n until the step ends before the n-th call. The server is started again,
the client repeats its call and continues to the end, and the invariants
[I1 to I6](../components/exchange.md#what-holds) are checked: rows and folders agree, each effect
exists once, replies are visible if and only if the ERP committed, no process stays open, the
repeated call gets the same answer as in a run without a crash, and the files and states at the end
are the same as in that run.
"""
BELOW = """
`sendto` sends a call to the journal; each call is a transaction. After a kill at `recvfrom` the
transaction is committed and the server has not received the result. `write` in the main thread is
the answer to the client; in the file thread it is the content of a file, or the notification of the
main thread that a file is complete. These calls were traced as well and do not occur: {unseen}.
"""
ENGLISH: dict[str, Any] = {
    "title": "Crash table of the exchange",
    "above": ABOVE,
    "total": "**{total} kills, {broken} violations.**",
    "head": ("step", "kills", "I1 to I6"),
    "hold": "hold",
    "below": BELOW,
    "missing": "Not run: {missing}.",
    "steps": {},
}
RUSSIAN = tomllib.loads(Path(__file__).with_name("russian.toml").read_text(encoding="utf-8"))
WIDTH = 120


@dataclass
class Row:
    """What happened in one scenario."""

    scenario: str
    points: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def page(rows: Sequence[Row], texts: Mapping[str, Any] = ENGLISH) -> str:
    """Write the table."""
    names = [scenario.name for scenario in SCENARIOS]
    rows = sorted(rows, key=lambda row: names.index(row.scenario))
    missing = [name for name in names if name not in {row.scenario for row in rows}]
    calls = [call for call in CALLS if any(row.points[call] for row in rows)]
    total = sum(sum(row.points.values()) for row in rows)
    broken = sum(len(row.violations) for row in rows)
    step, kills, invariants = texts["head"]
    lines = [
        f"# {texts['title']}",
        "",
        textwrap.fill(texts["above"].strip(), WIDTH),
        "",
        texts["total"].format(total=total, broken=broken),
        "",
        f"| {step} | " + " | ".join(f"`{call}`" for call in calls) + f" | {kills} | {invariants} |",
        "|---|" + "---:|" * (len(calls) + 1) + "---|",
    ]
    for row in rows:
        numbers = " | ".join(str(row.points[call]) for call in calls)
        verdict = "; ".join(row.violations) or texts["hold"]
        name = texts["steps"].get(row.scenario, row.scenario)
        lines.append(f"| {name} | {numbers} | {sum(row.points.values())} | {verdict} |")
    unseen = ", ".join(f"`{call}`" for call in CALLS if call not in calls)
    lines += ["", textwrap.fill(texts["below"].strip().format(unseen=unseen), WIDTH), ""]
    if missing:
        lines += [texts["missing"].format(missing=", ".join(missing)), ""]
    return "\n".join(lines)
