"""What a power loss leaves of the product's files, in every state that a file system allows.

The calls of a program are recorded once. From the recording follow the trees that a power loss may
leave at each point; each tree is written to a folder and reopened with the product.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof.options import Options
from proof.power.checks import SUBJECTS, Subject
from proof.power.model import MAX_PENDING, RULES, State, states
from proof.power.trace import Recording, record
from proof.report import Report, Table

__all__ = ["SUBJECTS", "Found", "check", "planted", "record_subject", "run", "work_folder"]

# One loss has many states: the others only repeat it.
MAX_VIOLATIONS = 3


@dataclass
class Found:
    """How many states were reopened, and what did not hold."""

    states: int = 0
    violations: list[str] = field(default_factory=list)


@contextmanager
def work_folder() -> Iterator[Path]:
    """Give a folder that the user of the embedded server can reach, too."""
    folder = Path(tempfile.mkdtemp(prefix="power-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def record_subject(subject: Subject, folder: Path) -> Recording:
    """Record the program of a subject in a folder."""
    root = folder / "recorded"
    root.mkdir()
    promises = folder / "promises"
    command = [sys.executable, "-m", "proof.power.programs", subject.name, root, promises]
    return record(
        [str(word) for word in command],
        root,
        promises,
        folder / "calls",
        has_threads=subject.has_threads,
    )


def check(
    subject: Subject,
    found_states: Iterable[State],
    folder: Path,
    max_violations: int = MAX_VIOLATIONS,
) -> Found:
    """Reopen every state; end after some violations."""
    found = Found()
    for state in found_states:
        found.states += 1
        root = folder / "state"
        root.mkdir(mode=0o755)
        try:
            promises = [json.loads(promise) for promise in state.promises]
            for violation in subject.violations(state.tree, root, promises):
                found.violations.append(f"{violation} ({state.text})")
        finally:
            shutil.rmtree(root)
        if len(found.violations) >= max_violations:
            break
    return found


def planted(recording: Recording) -> Iterator[tuple[str, list[State]]]:
    """Yield each fsync, and the states that are possible without it only.

    An fsync without such states is left out: another one before the next promise covers the same.
    """
    usual = {state.key for rule in RULES for state in states(recording, rule)}
    for index, operation in enumerate(recording.operations):
        if operation.kind == "sync":
            without = recording.without(index)
            more = [state for rule in RULES for state in states(without, rule)]
            if new := [state for state in more if state.key not in usual]:
                yield operation.text, new


def run(options: Options) -> Report:
    """Check each subject under both rules, then without each of its fsyncs."""
    wanted = [each for each in SUBJECTS if not options.arguments or each.name in options.arguments]
    rows: list[tuple[str, ...]] = []
    violations: list[str] = []
    unfound: list[str] = []
    faults = checked = 0
    for subject in wanted:
        with work_folder() as folder:
            recording = record_subject(subject, folder)
            for rule in RULES:
                began = time.monotonic()
                found = check(subject, states(recording, rule), folder)
                checked += found.states
                violations += [f"{subject.name}: {each}" for each in found.violations]
                rows.append(
                    (
                        subject.name,
                        subject.promise,
                        rule,
                        str(len(recording.operations)),
                        f"{found.states:,}",
                        str(len(found.violations)),
                    )
                )
                seconds = time.monotonic() - began
                _say(f"{subject.name}, {rule}: {found.states} states, {seconds:.0f} s")
            for text, new in planted(recording):
                faults += 1
                if not check(subject, new, folder, 1).violations:
                    unfound.append(f"{subject.name}: nothing is lost without [{text}]")
                _say(f"{subject.name}, without {text}: {len(unfound)} not found so far")
    return _report(checked, rows, [*violations, *unfound], faults, len(unfound))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _report(
    checked: int,
    rows: list[tuple[str, ...]],
    violations: list[str],
    faults: int,
    unfound: int,
) -> Report:
    return Report(
        title="Power loss",
        introduction=(
            "The calls that a program makes to its files are recorded with strace. From them follow"
            " the trees that a power loss may leave: changes of names and contents that no fsync"
            " covers may be lost, each alone. Every tree is written to a folder and reopened with"
            " the product, which must keep what it had promised at that point."
        ),
        facts=(
            ("states reopened", f"{checked:,}"),
            ("fsyncs left out, one at a time", str(faults)),
            ("of these, losses found", str(faults - unfound)),
        ),
        tables=(
            Table(
                "Subjects",
                ("subject", "promise", "file system", "calls", "states", "violations"),
                tuple(rows),
            ),
            Table(
                "File systems",
                ("", "changes of names", "unsynced contents"),
                (
                    ("ordered", "kept in their order", "kept or absent"),
                    (
                        "unordered",
                        "kept in their order within a folder, folders independent",
                        "kept, absent, zeroed or cut in half",
                    ),
                ),
            ),
        ),
        violations=tuple(violations),
        limits=(
            f"With more than {MAX_PENDING} changes pending, all prefixes and all single losses are"
            " tried, not all subsets.",
            "A rename between two folders is one change. Contents that initdb wrote count as"
            " durable, because it syncs them. Permissions are not modelled.",
            "The folder of the exchange is not among the subjects yet.",
        ),
    )
