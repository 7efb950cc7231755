"""What a power loss leaves of the product's files, in every state that a file system allows.

The calls of a program are recorded once. From the recording follow the trees that a power loss may
leave at each point; each tree is written to a folder and reopened with the product.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof.options import Options
from proof.power.checks import SUBJECTS, Subject
from proof.power.exchange import STEPS, Step, explore, servers
from proof.power.model import MAX_PENDING, RULES, State, states
from proof.power.trace import Recording, record
from proof.report import Report, Table

__all__ = ["SUBJECTS", "Found", "check", "planted", "record_subject", "run", "work_folder"]

# One loss has many states: the others only repeat it.
MAX_VIOLATIONS = 3
QUICK_STEPS = ("intake", "API_3 upload", "API_4 commit", "ack")
# Calls of each kind at which the exchange is killed, and states of each of these moments.
QUICK_POINTS = 2
QUICK_STATES = 4
FULL_POINTS = 200


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
    steps = _explore(options)
    for step in steps:
        checked += step.states
        faults += step.faults
        violations += [f"exchange, {step.name}: {each}" for each in step.violations]
        unfound += [f"exchange, {step.name}: {each}" for each in step.unfound]
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
    return _report(checked, rows, steps, [*violations, *unfound], faults, len(unfound))


def _explore(options: Options) -> list[Step]:
    """Check the steps of the exchange: a few of them, or all in full length."""
    names = {word.replace("_", " ") for word in options.arguments} or set(QUICK_STEPS)
    chosen = [each for each in STEPS if options.is_full or each.name in names]
    random_ = random.Random(options.seed)

    def choose(states: Sequence[State]) -> Sequence[State]:
        most = len(states) if options.is_full else QUICK_STATES
        return random_.sample(states, min(most, len(states)))

    steps: list[Step] = []
    if chosen:
        with work_folder() as folder, servers(folder) as (server, fork_server):
            for scenario in chosen:
                points = FULL_POINTS if options.is_full else QUICK_POINTS
                steps.append(explore(server, fork_server, scenario, choose, points))
                _say(f"exchange, {scenario.name}: {steps[-1]}")
    return steps


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _report(
    checked: int,
    rows: list[tuple[str, ...]],
    steps: list[Step],
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
            " the product, which must keep what it had promised at that point. The steps of the"
            " exchange are those of the crash table: each state of its folder meets the journal of"
            " that moment, the call is repeated, and everything must come to its usual end."
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
                "The exchange",
                ("step", "killed at", "states", "fsyncs left out", "violations"),
                tuple(
                    (
                        step.name,
                        f"{step.points} calls",
                        f"{step.states:,}",
                        str(step.faults),
                        str(len(step.violations) + len(step.unfound)),
                    )
                    for step in steps
                ),
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
            "Of the exchange, some steps, calls and states are chosen unless FULL=1; its starts"
            " after a crash are not among the steps.",
        ),
    )
