"""What a part has found, as data, and the pages of docs/proof made from it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proof.options import ROOT, Options

__all__ = ["PAGES", "Report", "Table", "write_index", "write_page"]

PAGES = ROOT / "docs" / "proof"

_INDEX = """\
# Proof

Each page is the result of one part of `make proof`: real servers, faults and orders of statements
that users meet and tests rarely do, and checkers that decide from records which promises held.
Written by `make proof`; do not edit.

"""
_READING = """
## Reproduce

    make proof                            # all parts, under 30 minutes
    make proof FULL=1                     # all parts in full length
    make proof ONLY=faults SEED=7         # one part, from another seed
    make proof ONLY=mutations FULL=1      # all mutants of the safety code; some hours on two cores

Debian's packages of the servers are installed if they are missing. Network namespaces, the rules
of the packet filter and small file systems in memory need root; without it nodes get loopback
addresses, and the page lists the faults that were left out. The same seed gives the same choices.
When which process has which role differs from run to run, as with the primary of a cluster, the
choices are made again among those of that moment.

## Read a page

- **commit** is the product that was tested; a plus sign stands for uncommitted changes.
- **violations**: each sentence names a promise that did not hold, and what is needed to
  repeat the case. The command fails when there is one. A page with violations stays as it is
  until a run without them.
- **limits** are what this run could not show, and why.

Clients write a line to a file before each call and after its answer, so that the record of a
killed client is complete. The checkers (`proof/history`) import nothing of Postroad; tests plant
violations that each of them must find.

## What runs have found

| found | cause | what was done |
|---|---|---|
| acknowledged messages lost after a partition | `synchronous_mode_strict: false`: a promoted \
primary acknowledged commits before it had a standby | `true` in the cluster and in the docs |
| the same with strict mode | Patroni 3.0 read a stale leader from the etcd node that was cut off \
with its server | etcd on nodes of its own, in the cluster and in the docs |
| the same after a primary was frozen for longer than the TTL of its key | Patroni before 3.0.3 \
writes the leader's key in etcd v3 without a condition: the frozen primary took it back | etcd v2, \
which compares, in the cluster; the docs name both |
| standbys that never followed again | `pg_rewind` from a primary that was promoted twice within \
seconds | diverged standbys are copied |
| `worker-proxy ended with 1` | LISTEN on a server that had just been demoted ended the worker | \
fixed; `tests/chaos/test_failover.py` |
| a key file, an imported object or the data directory missing after a power loss | files were \
synced, new folders and names were not | both are; `tests/proof/test_power.py` |
| an empty description beside an uploaded reply | it was written under its final name, and kept \
when a kill or a power loss cut it | written aside and renamed; `tests/proof/test_power.py` |
| writes rejected for as long as a connection led to a demoted server | journals and Celery kept \
that connection | fixed; `tests/chaos/test_demoted.py` |
| a lost message in `consume_after` | the model undid a committed take | model fixed, with a test |
"""


@dataclass(frozen=True)
class Table:
    """A table of the page; every row has as many cells as the head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.head)]
        if wrong:
            raise ValueError(f"{self.title}: {len(self.head)} columns, but a row {wrong[0]}")


@dataclass(frozen=True)
class Report:
    """The result of one part.

    `facts` become the table at the top, in their order (operations, faults, longest
    unavailability). `violations` is empty when every promise held; each entry is one sentence.
    `limits` names what this run could not show, and why.
    """

    title: str
    introduction: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...] = ()
    violations: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


def write_page(folder: Path, part: str, report: Report, options: Options, seconds: float) -> None:
    """Write `<part>.md`, and `<part>.json` from which the index is made."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = (
        ("date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("commit", _commit()),
        ("command", _command(part, options)),
        ("duration", f"{seconds / 60:.1f} minutes"),
        *report.facts,
        ("violations", str(len(report.violations))),
    )
    lines = [f"# {report.title}", "", f"Written by `make proof ONLY={part}`; do not edit.", ""]
    lines += [report.introduction.strip(), "", *_table(("", ""), facts)]
    for table in report.tables:
        lines += ["", f"## {table.title}", "", *_table(table.head, table.rows)]
    for title, entries in (("Violations", report.violations), ("Limits", report.limits)):
        if entries:
            lines += ["", f"## {title}", "", *(f"- {entry}" for entry in entries)]
    (folder / f"{part}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    stored = {"title": report.title, "facts": facts, "report": asdict(report)}
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    (folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")


def write_index(folder: Path) -> None:
    """Write index.md: one row for each part that has a page, and how to read and reproduce it."""
    rows = []
    for file in sorted(folder.glob("*.json")):
        stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        facts = dict(stored["facts"])
        link = f"[{stored['title']}]({file.stem}.md)"
        rows.append((link, facts["date"], facts["commit"], facts["violations"]))
    lines = _table(("part", "date", "commit", "violations"), rows)
    text = _INDEX + "\n".join(lines) + "\n" + _READING
    (folder / "index.md").write_text(text, encoding="utf-8")


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _command(part: str, options: Options) -> str:
    words = ["make proof", f"ONLY={part}", f"SEED={options.seed}"]
    words += ["FULL=1"] if options.is_full else []
    words += [f"SECONDS={options.seconds:.0f}"] if options.seconds is not None else []
    words += [f'ARGS="-- {" ".join(options.arguments)}"'] if options.arguments else []
    return f"`{' '.join(words)}`"


def _commit() -> str:
    """Return the commit that is tested, with a plus sign when the product differs from it."""
    head = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    return f"{head}+" if _git("status", "--porcelain", "--", "src") else head


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
