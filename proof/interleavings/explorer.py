"""Runs programs of several sessions in every order of their statements, and judges each run.

A program is a list of transactions, a transaction a list of steps. At each point the explorer
chooses a session that can go on, and what it does: its next step, or, where fewer than
`max_deviations` were made in this run, a commit or a rollback before its time. After a rollback
the session goes on with its next transaction; after an early commit the rest of the steps is a
transaction of its own.

A step that waits for a lock stays under way while other sessions go on. A deadlock ends a
transaction with 40P01; the session then repeats it from its beginning, as a client would.

A run is the list of its choices, so it can be repeated. All runs are found by depth: the last
choice that has an alternative is changed. Where there are more than the limit, distinct random runs
are taken instead.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import psycopg
from psycopg import Connection

from proof.interleavings.session import Answer, Observer, Session

__all__ = [
    "DEADLOCK",
    "Checker",
    "Exploration",
    "Explorer",
    "Player",
    "Scenario",
    "Statement",
    "Step",
    "Verdict",
]

DEADLOCK = "40P01"
# Only a run that hangs waits this long.
HANG_SECONDS = 60.0
RESTARTS_MOST = 5


Statement = tuple[str, tuple[str | None, ...]]


class Checker(Protocol):
    """What a scenario compares the database with. One object per run."""

    violations: list[str]

    def committed(self, session: int) -> None:
        """Let what the session's transaction did take effect."""

    def rolled_back(self, session: int) -> None:
        """Forget what the session's transaction did."""

    def finish(self) -> None:
        """Judge the state at the end, when no transaction is open."""


class Step(Protocol):
    """A statement of a program."""

    def statement(self, checker: Checker, session: int) -> Statement | None:
        """Return text and parameters, or None if there is nothing to do at this point."""

    def ended(self, checker: Checker, session: int, answer: Answer, was_blocked: bool) -> bool:
        """Tell the checker the answer; False if this error was not to be expected."""


Program = Sequence[Sequence[Step]]


@dataclass(frozen=True)
class Scenario:
    """Programs that run against each other."""

    name: str
    title: str
    prepare: Callable[[str], None]
    programs: tuple[Program, ...]
    checker: Callable[[Connection, int], Checker]
    # Set where a function waits for locks up to a time limit of its own: a wait counts as blocking
    # only when it has lasted longer.
    patience_seconds: float = 0.0
    max_deviations: int = 2
    # After these errors a client repeats its transaction.
    retryable: frozenset[str] = frozenset({DEADLOCK})


@dataclass(frozen=True)
class Verdict:
    """How one run ended."""

    choices: tuple[int, ...]
    steps: tuple[str, ...]
    blocked: int
    deadlocks: int
    violations: tuple[str, ...]


@dataclass
class Exploration:
    """The sum over the runs of a scenario."""

    scenario: str
    title: str
    is_complete: bool = False
    estimate: float = 0.0
    runs: int = 0
    blocked_runs: int = 0
    deadlocks: int = 0
    skipped: int = 0
    violations: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count a run."""
        self.runs += 1
        self.blocked_runs += verdict.blocked > 0
        self.deadlocks += verdict.deadlocks
        if verdict.violations:
            self.violations.append(verdict)


class _Infeasible(Exception):
    """A recorded choice does not exist in this repetition."""


@dataclass
class _State:
    """Where one session is in its program."""

    connection: Session
    transaction: int = 0
    step: int = 0
    is_open: bool = False
    under_way: Step | str | None = None
    was_blocked: bool = False
    restarts: int = 0
    # The step that its open transaction began with.
    first: int = 0


class Player:
    """Plays runs of one scenario on one database."""

    def __init__(self, scenario: Scenario, dsn: str) -> None:
        self._scenario = scenario
        self._connections = [Session(dsn) for _ in scenario.programs]
        # Of the checkers: one for all runs, because a new one would compile every function again.
        self._control = psycopg.connect(dsn, autocommit=True)
        self._observer = Observer(dsn)
        self._number = 0

    def close(self) -> None:
        """End all sessions."""
        for connection in self._connections:
            connection.close()
        self._observer.close()
        self._control.close()

    def play(self, choose: Callable[[int, list[str]], int]) -> tuple[Verdict, list[int], list[int]]:
        """Run the programs once; `choose` picks one of the named options.

        Returns the verdict, the choices, and how many options each of them had.
        """
        self._number += 1
        checker = self._scenario.checker(self._control, self._number)
        run = _Run(self._scenario, self._connections, self._observer, checker)
        try:
            run.play(choose)
            checker.finish()
        finally:
            run.abandon()
        verdict = Verdict(
            tuple(run.choices),
            tuple(run.log),
            run.blocked,
            run.deadlocks,
            tuple(checker.violations),
        )
        return verdict, run.choices, run.widths


class _Run:
    def __init__(
        self,
        scenario: Scenario,
        connections: list[Session],
        observer: Observer,
        checker: Checker,
    ) -> None:
        self._scenario = scenario
        self._states = [_State(connection) for connection in connections]
        self._observer = observer
        self._checker = checker
        self._deviations = 0
        self.choices: list[int] = []
        self.widths: list[int] = []
        self.log: list[str] = []
        self.blocked = 0
        self.deadlocks = 0

    def play(self, choose: Callable[[int, list[str]], int]) -> None:
        while True:
            options = self._options()
            if not options:
                if all(state.under_way is None for state in self._states):
                    return
                self._await_any()
                continue
            names = [f"{session}.{kind}" for session, kind in options]
            chosen = choose(len(self.choices), names)
            self.choices.append(chosen)
            self.widths.append(len(options))
            self._perform(*options[chosen])
            self._settle(options[chosen][0])

    def abandon(self) -> None:
        """Leave no transaction open, whatever happened."""
        for state in self._states:
            if state.under_way is not None:
                state.connection.is_done(HANG_SECONDS)
                state.connection.answer()
            if state.is_open:
                state.connection.run("rollback")

    def _options(self) -> list[tuple[int, str]]:
        options: list[tuple[int, str]] = []
        early: list[tuple[int, str]] = []
        for session, state in enumerate(self._states):
            program = self._scenario.programs[session]
            if state.under_way is not None or state.transaction >= len(program):
                continue
            options.append((session, "next"))
            if state.is_open and self._deviations < self._scenario.max_deviations:
                early.append((session, "rollback"))
                if state.step < len(program[state.transaction]):
                    early.append((session, "commit"))
        return options + early

    def _perform(self, session: int, kind: str) -> None:
        state = self._states[session]
        steps = self._scenario.programs[session][state.transaction]
        if kind == "rollback":
            self._deviations += 1
            self._begin_end(session, "rollback")
            return
        if kind == "commit":
            self._deviations += 1
            self._begin_end(session, "commit")
            return
        while state.step < len(steps):
            step = steps[state.step]
            state.step += 1
            statement = step.statement(self._checker, session)
            if statement is None:
                self.log.append(f"{session}: {step} has nothing to do")
                continue
            if not state.is_open:
                state.connection.run("begin")
                state.is_open = True
            self.log.append(f"{session}: {step}")
            state.under_way = step
            state.was_blocked = False
            state.connection.start(*statement)
            return
        self._begin_end(session, "commit")

    def _begin_end(self, session: int, kind: str) -> None:
        state = self._states[session]
        self.log.append(f"{session}: {kind}")
        if not state.is_open:
            # Each of its steps had nothing to do.
            self._transaction_ended(session, kind == "commit")
            return
        state.under_way = kind
        state.was_blocked = False
        state.connection.start(kind)

    def _settle(self, acting: int | None = None) -> None:
        """Wait until each statement under way has ended or waits for a lock of another session.

        First that of the acting session: a commit lets others go on before it returns.
        """
        began = time.monotonic()
        patient_since: float | None = None
        while True:
            waiting = [s for s, state in enumerate(self._states) if state.under_way is not None]
            if acting in waiting:
                waiting = [acting]
            ended = [s for s in waiting if self._states[s].connection.is_done(0.002)]
            for session in ended:
                self._ended(session)
            if ended:
                patient_since = None
                continue
            if not waiting:
                return
            blockers = self._waits(waiting)
            if acting is not None and waiting == [acting]:
                if blockers:
                    acting = None
            # A session that waits only for others that wait in a circle gets a deadlock soon.
            elif len(blockers) == len(waiting) and self._lead_to_a_free_one(blockers):
                patient_since = patient_since or time.monotonic()
                if time.monotonic() - patient_since >= self._scenario.patience_seconds:
                    return
            else:
                patient_since = None
            if time.monotonic() - began > HANG_SECONDS:
                raise TimeoutError(f"a statement neither ends nor waits for a lock: {self.log}")

    def _waits(self, sessions: list[int]) -> dict[int, set[int]]:
        """Return which of these sessions wait for a lock, and for whom, as process ids."""
        of_pid = {self._states[session].connection.pid: session for session in sessions}
        blockers = self._observer.blockers(list(of_pid))
        for pid in blockers:
            state = self._states[of_pid[pid]]
            if not state.was_blocked:
                state.was_blocked = True
                self.blocked += 1
                self.log.append(f"{of_pid[pid]}: waits")
        return blockers

    def _lead_to_a_free_one(self, blockers: dict[int, set[int]]) -> bool:
        """Return whether each waiting session waits, over others, for one that can go on."""
        reached = {state.connection.pid for state in self._states if state.under_way is None}
        while True:
            more = {pid for pid, by in blockers.items() if pid not in reached and by & reached}
            if not more:
                return all(pid in reached for pid in blockers)
            reached |= more

    def _await_any(self) -> None:
        began = time.monotonic()
        while True:
            for session, state in enumerate(self._states):
                if state.under_way is not None and state.connection.is_done(0.002):
                    self._ended(session)
                    self._settle()
                    return
            if time.monotonic() - began > HANG_SECONDS:
                raise TimeoutError(f"all sessions wait: {self.log}")

    def _ended(self, session: int) -> None:
        state = self._states[session]
        step, state.under_way = state.under_way, None
        answer = state.connection.answer()
        if isinstance(step, str):
            if answer.sqlstate is None:
                self._transaction_ended(session, step == "commit")
            else:
                self._failed(session, answer, is_expected=False)
            return
        assert step is not None
        if answer.sqlstate in self._scenario.retryable:
            self._failed(session, answer, is_expected=True)
            return
        is_expected = step.ended(self._checker, session, answer, state.was_blocked)
        if answer.sqlstate is not None:
            self._failed(session, answer, is_expected)

    def _failed(self, session: int, answer: Answer, is_expected: bool) -> None:
        state = self._states[session]
        self.log.append(f"{session}: {answer.sqlstate}")
        state.connection.run("rollback")
        self._checker.rolled_back(session)
        state.is_open = False
        if answer.sqlstate in self._scenario.retryable:
            self.deadlocks += answer.sqlstate == DEADLOCK
            state.restarts += 1
            state.step = state.first
            if state.restarts > RESTARTS_MOST:
                self._checker.violations.append(
                    f"session {session} got {answer.sqlstate} each time"
                )
                state.transaction += 1
                state.step = state.first = 0
            return
        if not is_expected:
            self._checker.violations.append(
                f"session {session} got {answer.sqlstate}: {answer.message.strip()}"
            )
        state.transaction += 1
        state.step = state.first = 0

    def _transaction_ended(self, session: int, is_committed: bool) -> None:
        state = self._states[session]
        steps = self._scenario.programs[session][state.transaction]
        state.is_open = False
        if is_committed:
            self._checker.committed(session)
        else:
            self._checker.rolled_back(session)
        state.first = state.step
        if not is_committed or state.step >= len(steps):
            state.transaction += 1
            state.step = state.first = 0


class Explorer:
    """Chooses the runs of one scenario.

    `open_database` gives the DSN of a fresh database with the schemas; after a violation the next
    run has a new one, so that no run suffers from what an earlier one has left.
    """

    def __init__(self, scenario: Scenario, open_database: Callable[[], str]) -> None:
        self._scenario = scenario
        self._open_database = open_database
        self._player: Player | None = None
        self._until = math.inf

    def explore(
        self,
        limit: int,
        seed: int,
        on_run: Callable[[Exploration], None] = lambda _: None,
        violations_most: int = 3,
        until: float = math.inf,
    ) -> Exploration:
        """Make all runs if there are no more than `limit`, else so many random ones.

        It ends early at `until`, by the monotonic clock.
        """
        self._until = until
        found = Exploration(self._scenario.name, self._scenario.title)
        try:
            self._sample(found, min(limit, 40), seed, on_run, violations_most)
            if len(found.violations) >= violations_most:
                return found
            if found.estimate <= 2 * limit:
                every = Exploration(
                    self._scenario.name, self._scenario.title, estimate=found.estimate
                )
                every.violations = found.violations
                self._walk(every, limit, on_run, violations_most)
                if every.is_complete:
                    return every
                found.violations = every.violations
            self._sample(found, limit - found.runs, seed + 1, on_run, violations_most)
        finally:
            self._close()
        return found

    def repeat(self, choices: Sequence[int]) -> Verdict:
        """Make one run again, in a fresh database."""
        try:
            return self._play(lambda place, options: _recorded(choices, place, options))[0]
        finally:
            self._close()

    def _sample(
        self,
        found: Exploration,
        count: int,
        seed: int,
        on_run: Callable[[Exploration], None],
        violations_most: int,
    ) -> None:
        chance = _Chance(seed)
        seen: set[tuple[int, ...]] = set()
        sizes: list[float] = []
        for _ in range(2 * count):
            if len(seen) >= count or len(found.violations) >= violations_most:
                break
            if seen and time.monotonic() > self._until:
                break
            chance.size = 1.0
            verdict, choices, _ = self._play(chance.choose)
            sizes.append(chance.size)
            if tuple(choices) not in seen:
                seen.add(tuple(choices))
                found.add(verdict)
                on_run(found)
        if sizes and not found.estimate:
            found.estimate = sum(sizes) / len(sizes)

    def _walk(
        self,
        found: Exploration,
        limit: int,
        on_run: Callable[[Exploration], None],
        violations_most: int,
    ) -> None:
        choices: list[int] = []
        widths: list[int] = []
        while found.runs < 2 * limit and len(found.violations) < violations_most:
            if time.monotonic() > self._until:
                break
            prefix = tuple(choices)
            try:
                verdict, choices, widths = self._play(
                    lambda place, options, prefix=prefix: _recorded(prefix, place, options)  # type: ignore[misc]
                )
            except _Infeasible:
                found.skipped += 1
                choices = choices[:-1]
            else:
                found.add(verdict)
                on_run(found)
            while choices and choices[-1] + 1 >= widths[len(choices) - 1]:
                choices.pop()
            if not choices:
                found.is_complete = True
                return
            choices[-1] += 1

    def _play(
        self, choose: Callable[[int, list[str]], int]
    ) -> tuple[Verdict, list[int], list[int]]:
        if self._player is None:
            dsn = self._open_database()
            self._scenario.prepare(dsn)
            self._player = Player(self._scenario, dsn)
        try:
            verdict, choices, widths = self._player.play(choose)
        except BaseException:
            self._close()
            raise
        if verdict.violations:
            self._close()
        return verdict, choices, widths

    def _close(self) -> None:
        if self._player is not None:
            self._player.close()
            self._player = None


def _recorded(choices: Sequence[int], place: int, options: list[str]) -> int:
    if place >= len(choices):
        return 0
    if choices[place] >= len(options):
        raise _Infeasible
    return choices[place]


# How much more likely the next step is than an early end, in random runs: most of the time several
# steps should meet.
NEXT_WEIGHT = 6


class _Chance:
    """Random choices, and what they say about the number of all runs.

    The mean of `size`, the reciprocal of the probability of a run, is that number.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.size = 1.0

    def choose(self, _place: int, options: list[str]) -> int:
        weights = [NEXT_WEIGHT if option.endswith(".next") else 1 for option in options]
        chosen: int = self._random.choices(range(len(options)), weights)[0]
        self.size *= sum(weights) / weights[chosen]
        return chosen
