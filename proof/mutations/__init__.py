"""Mutation testing of the code that carries the promises.

A mutant is the code with one lock, condition, check or statement less, or with one comparison or
order changed. Tests must fail on it. Words after `--`: names of groups of targets.toml; `jobs=3`
for the number of processes; `only=lock,fence` for changes with one of these words in their name;
and `resume` to take over the verdicts of earlier runs that tests noticed a mutant, as long as the
mutated file is the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import random
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroad.testing import TestServer
from postroad.testing.run_folder import close_run_folder, name_run_folder, run_folder
from proof.mutations.judge import SOURCE, Judge, State, Verdict
from proof.mutations.mutant import Mutant
from proof.mutations.python_mutator import python_mutants
from proof.mutations.sql_mutator import sql_mutants
from proof.options import ROOT, Options
from proof.report import Report, Table

__all__ = ["Group", "groups", "mutants_of", "run", "stale"]

HERE = Path(__file__).parent
QUICK_SECONDS = 150.0
# Percent of mutants, explained ones left out, that tests must notice.
BAR = 95.0
_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Group:
    """Files that carry one promise, and the tests that must notice their mutants."""

    name: str
    promise: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


def groups() -> list[Group]:
    """Return what targets.toml lists, with its patterns resolved."""
    entries = tomllib.loads((HERE / "targets.toml").read_text(encoding="utf-8"))["group"]
    return [
        Group(
            entry["name"],
            entry["promise"],
            tuple(_paths(SOURCE, entry["files"], SOURCE)),
            tuple(_paths(ROOT / "tests", entry["tests"], ROOT)),
        )
        for entry in entries
    ]


def mutants_of(file: str) -> list[Mutant]:
    """Return the mutants of a file below src/postroad."""
    text = (SOURCE / file).read_text(encoding="utf-8")
    return python_mutants(file, text) if file.endswith(".py") else sql_mutants(file, text)


def explained() -> dict[str, str]:
    """Return the reasons of explained.toml by the name of the mutant."""
    entries = tomllib.loads((HERE / "explained.toml").read_text(encoding="utf-8"))
    return {name: entry["reason"] for name, entry in entries.items()}


def stale(names: Iterable[str], mutants: Iterable[Mutant], killed: Iterable[str]) -> list[str]:
    """Return the entries of explained.toml that explain nothing (any more)."""
    there, noticed = {mutant.name for mutant in mutants}, set(killed)
    return [
        f"explained.toml has {name}, which {'no mutant' if name not in there else 'a test'} has"
        for name in names
        if name not in there or name in noticed
    ]


def run(options: Options) -> Report:
    """Judge the mutants, or a sample of them, and report how many tests noticed."""
    words = set(options.arguments)
    jobs = next((int(word[5:]) for word in words if word.startswith("jobs=")), os.cpu_count() or 1)
    chosen = [group for group in groups() if group.name in words]
    chosen = chosen or groups()
    changes = next((word[5:].split(",") for word in words if word.startswith("only=")), [""])
    work = [
        (group, mutant)
        for group in chosen
        for file in group.files
        for mutant in mutants_of(file)
        if any(change in mutant.operator for change in changes)
    ]
    reasons = explained()
    known = _Store(options.scratch / "mutations" / "verdicts.json")
    verdicts = {
        mutant.name: verdict
        for _, mutant in work
        if "resume" in words and (verdict := known.get(mutant)) is not None
    }
    taken_over = len(verdicts)
    open_work = [
        (group, mutant)
        for group, mutant in work
        if mutant.name not in verdicts and mutant.name not in reasons
    ]
    random.Random(options.seed).shuffle(open_work)
    seconds = options.seconds or (math.inf if options.is_full else QUICK_SECONDS)
    broken: set[str] = set()
    with _running_server() as server:
        for verdict, of_judge in _judge(server, open_work, jobs, seconds, options.scratch):
            verdicts[verdict.mutant.name] = verdict
            broken |= of_judge
            known.put(verdict)
            _show(verdict, len(verdicts), len(work) - len(reasons))
    return _report(work, verdicts, reasons, taken_over, sorted(broken), chosen)


@contextmanager
def _running_server() -> Iterator[TestServer]:
    name_run_folder()
    server = TestServer.of_run(run_folder())
    server.start()
    try:
        yield server
    finally:
        server.stop()
        close_run_folder()


def _judge(
    server: TestServer,
    work: list[tuple[Group, Mutant]],
    jobs: int,
    seconds: float,
    scratch: Path,
) -> Iterator[tuple[Verdict, set[str]]]:
    """Judge in several processes; yields a verdict as soon as one is there."""
    if not work:
        return
    tests = sorted({test for group, _ in work for test in group.tests})
    following, answers = _fork.Value("i", 0), _fork.Queue()

    def judge() -> None:
        try:
            judge = Judge(server, tests, scratch / "mutations")
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                with following.get_lock():
                    place = following.value
                    following.value += 1
                if place >= len(work):
                    break
                group, mutant = work[place]
                answers.put((judge.judge(mutant, group.tests), judge.broken))
            judge.close()
        finally:
            answers.put(None)

    workers = [_fork.Process(target=judge, daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    running = jobs
    while running:
        answer = answers.get()
        running -= answer is None
        if answer is not None:
            yield answer
    for worker in workers:
        worker.join()


def _show(verdict: Verdict, count: int, of: int) -> None:
    mutant = verdict.mutant
    print(
        f"{count}/{of} {verdict.state} {verdict.seconds:.1f}s {mutant.file}:{mutant.line}"
        f" {mutant.name} {mutant.operator}: {_short(mutant.before)} -> {_short(mutant.after)}"
        f" {verdict.by}",
        flush=True,
    )


class _Store:
    """Verdicts of earlier runs, each valid for the text of the file that was mutated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: dict[str, str] = {}
        self._kept: dict[str, list[str]] = {}
        with suppress(FileNotFoundError):
            self._kept = json.loads(path.read_text(encoding="utf-8"))

    def get(self, mutant: Mutant) -> Verdict | None:
        state: State
        text, state, by = self._kept.get(mutant.name, ["", "", ""])  # type: ignore[assignment]
        is_valid = text == self._text(mutant.file) and state not in ("survived", "broken")
        return Verdict(mutant, state, by) if is_valid else None

    def put(self, verdict: Verdict) -> None:
        text = self._text(verdict.mutant.file)
        self._kept[verdict.mutant.name] = [text, verdict.state, verdict.by]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Written aside: an interrupted run leaves what it had.
        aside = self._path.with_suffix(".new")
        aside.write_text(json.dumps(self._kept), encoding="utf-8")
        aside.rename(self._path)

    def _text(self, file: str) -> str:
        if file not in self._texts:
            self._texts[file] = hashlib.sha256((SOURCE / file).read_bytes()).hexdigest()[:16]
        return self._texts[file]


def _report(
    work: list[tuple[Group, Mutant]],
    verdicts: dict[str, Verdict],
    reasons: dict[str, str],
    taken_over: int,
    broken: list[str],
    chosen: list[Group],
) -> Report:
    rows, total = [], Counter[str]()
    for group in chosen:
        of_group = [mutant for of, mutant in work if of.name == group.name]
        count = Counter[str](verdicts[m.name].state for m in of_group if m.name in verdicts)
        count["explained"] = sum(mutant.name in reasons for mutant in of_group)
        count["mutants"] = len(of_group)
        total += count
        rows.append((group.name, group.promise, *_cells(count)))
    operators = []
    for operator in sorted({mutant.operator for _, mutant in work}):
        count = Counter[str](
            verdicts[m.name].state for _, m in work if m.operator == operator and m.name in verdicts
        )
        count["mutants"] = sum(m.operator == operator for _, m in work)
        count["explained"] = sum(m.operator == operator and m.name in reasons for _, m in work)
        operators.append((operator, *_cells(count)))
    survivors = sorted(
        (verdict.mutant for verdict in verdicts.values() if verdict.state == "survived"),
        key=lambda mutant: (mutant.file, mutant.start),
    )
    killed = [name for name, verdict in verdicts.items() if verdict.state in ("killed", "late")]
    everything = [m for group in groups() for f in group.files for m in mutants_of(f)]
    violations = stale(reasons, everything, killed)
    score = _score(total)
    if score is not None and score < BAR:
        violations.append(f"tests noticed {score:.1f} % of the mutants, less than {BAR:.0f} %")
    judged = sum(total[state] for state in ("killed", "late", "survived"))
    limits = [
        "Covered are the files of `proof/mutations/targets.toml`, not the whole source.",
        "A dropped order alone may give the same order by chance, so an `order by` is reversed.",
        "Texts that PostgreSQL or Python refuses are no mutants and are left out of the score.",
        "A mutant is judged by the tests of its group; other tests might notice survivors.",
    ]
    left = len({m.name for _, m in work} - verdicts.keys() - reasons.keys())
    if left:
        limits.append(f"{left:,} of {total['mutants']:,} mutants were not judged: a random sample.")
    if taken_over:
        limits.append(f"{taken_over:,} verdicts are of earlier runs on the same text of the file.")
    undecided = [verdict for verdict in verdicts.values() if verdict.state == "broken"]
    if undecided:
        limits.append(f"{len(undecided)} mutants could not be judged: {undecided[0].by[-300:]}")
    if broken:
        limits.append(f"Left out, because they fail without a mutation: {', '.join(broken)}")
    head = ("mutants", "invalid", "judged", "killed", "did not end", "survived", "explained", "%")
    return Report(
        title="Mutations",
        introduction=(
            "The code that carries the promises, with one change at a time: a lock, a condition, a"
            " check or a statement is dropped, a comparison or an order changed. The tests of its"
            " group must fail. A mutant that no test can notice is explained in"
            " `proof/mutations/explained.toml`."
        ),
        facts=(
            ("mutants", f"{total['mutants']:,}"),
            ("judged", f"{judged:,}"),
            ("noticed by tests", f"{total['killed'] + total['late']:,}"),
            ("survived", str(total["survived"])),
            ("explained", str(total["explained"])),
            ("score", "none" if score is None else f"{score:.1f} %"),
        ),
        tables=(
            Table("Code", ("group", "promise", *head), tuple(rows)),
            Table("Changes", ("change", *head), tuple(operators)),
            Table(
                "Survivors",
                ("name", "place", "function", "change", "before", "after"),
                tuple(_row(mutant) for mutant in survivors),
            ),
            Table(
                "Explained",
                ("name", "place", "function", "change", "before", "reason"),
                tuple(
                    (*_row(mutant)[:5], reasons[mutant.name])
                    for _, mutant in work
                    if mutant.name in reasons
                ),
            ),
        ),
        violations=tuple(violations),
        limits=tuple(limits),
    )


def _cells(count: Counter[str]) -> tuple[str, ...]:
    score = _score(count)
    judged = count["killed"] + count["late"] + count["survived"]
    return (
        f"{count['mutants']:,}",
        str(count["invalid"]),
        str(judged),
        str(count["killed"]),
        str(count["late"]),
        str(count["survived"]),
        str(count["explained"]),
        "" if score is None else f"{score:.1f}",
    )


def _score(count: Counter[str]) -> float | None:
    killed = count["killed"] + count["late"]
    judged = killed + count["survived"]
    return 100 * killed / judged if judged else None


def _row(mutant: Mutant) -> tuple[str, ...]:
    return (
        mutant.name,
        f"{mutant.file}:{mutant.line}",
        mutant.function,
        mutant.operator,
        f"`{_short(mutant.before)}`" if mutant.before.strip() else "",
        f"`{_short(mutant.after)}`" if mutant.after.strip() else "",
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:67]}..."


def _paths(folder: Path, patterns: list[str], base: Path) -> list[str]:
    found: dict[str, Any] = {}
    for pattern in patterns:
        paths = sorted(folder.glob(pattern))
        if not paths:
            raise FileNotFoundError(f"targets.toml: no file {pattern} in {folder.name}")
        found.update(dict.fromkeys(str(path.relative_to(base)) for path in paths))
    return [name for name in found if not name.endswith("__init__.py")]
