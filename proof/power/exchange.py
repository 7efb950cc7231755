"""Power losses of the exchange: its folder in every state, beside the journal of that moment.

```
step of the crash table ──> killed at a call ──> journal: copied for each state
                                            └──> calls until then ──> states of the folder
```

The journal is a database, which keeps its commits itself, so it stays as it is at that moment.
Each state is brought to its end as the crash table does, and judged by the same checks.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from postroad.cli.components import SCHEMAS
from postroad.testing import TestServer, wait_until
from proof.power.model import RULES, State, states
from proof.power.trace import CALLS, MAX_STRING_BYTES, Reader, Recording, Tree
from tools.crash_table.scenarios import SCENARIOS, Scenario
from tools.crash_table.world import ForkServer, World

__all__ = [
    "KILLED_AT",
    "STEPS",
    "Moment",
    "Step",
    "explore",
    "moment",
    "servers",
    "usual_end",
    "violations",
]

# What changes the folder, and what reaches the journal and the clients.
KILLED_AT = ("write", "fsync", "renameat", "unlinkat", "mkdirat", "sendto")
# The others stop the server before the step, and a recording ends there.
STEPS = tuple(
    scenario
    for scenario in SCENARIOS
    if not scenario.is_recovery and not scenario.name.startswith("resolve")
)


class RecordedWorld(World):
    """A world whose server is recorded from its start on; killed, it stays so."""

    def __init__(self, dsn: str, fork_server: ForkServer, **settings: Any) -> None:
        super().__init__(dsn, fork_server, **settings)
        self.outputs: list[Path] = []

    def record(self) -> None:
        """Record the calls that change the folder."""
        self._record()

    def record_until(self, call: str, nth: int) -> None:
        """Record on, and kill the server as it enters a call."""
        self.disarm()
        self._record(f"-einject={call}:signal=SIGKILL:when={nth}", call=call)

    def _record(self, *options: str, call: str = "fsync") -> None:
        output = self.root.with_name(f"{self.root.name}.{len(self.outputs)}")
        self.outputs.append(output)
        calls = ",".join({*CALLS, call})
        more = ["-y", "-xx", f"-s{MAX_STRING_BYTES}", f"-o{output}", *options]
        self._trace("any", calls, more)

    def revive(self) -> None:
        """Start a server that was killed, unless it is to stay so."""
        if self.is_left and not self.is_alive():
            raise ConnectionError("the server was killed")
        super().revive()

    def close(self) -> None:
        """Remove everything."""
        super().close()
        for output in self.outputs:
            output.unlink(missing_ok=True)


@dataclass
class Moment:
    """A server that was killed in a step: its recording, and what its clients know."""

    world: RecordedWorld
    scenario: Scenario
    given: Any
    recording: Recording
    template: str

    def states(self) -> list[State]:
        """Return the states that a power loss at this moment may leave."""
        found = {
            state.key: state
            for rule in RULES
            for state in states(self.recording, rule, is_end_only=True)
        }
        return list(found.values())

    def planted(self) -> Iterator[tuple[str, list[State]]]:
        """Yield each fsync, and the states that are possible without it only."""
        usual = {state.key for state in self.states()}
        for index, operation in enumerate(self.recording.operations):
            if operation.kind == "sync":
                without = Moment(
                    self.world,
                    self.scenario,
                    self.given,
                    self.recording.without(index),
                    self.template,
                )
                if new := [state for state in without.states() if state.key not in usual]:
                    yield operation.text, new


@contextmanager
def servers(folder: Path) -> Iterator[tuple[TestServer, ForkServer]]:
    """Run a database server for journals, and what forks servers of the exchange."""
    (folder / "bin_folder").write_text("")
    server = TestServer(folder)
    server.start()
    fork_server = ForkServer()
    try:
        yield server, fork_server
    finally:
        fork_server.close()
        server.stop()


@contextmanager
def moment(
    server: TestServer,
    fork_server: ForkServer,
    scenario: Scenario,
    killed_at: tuple[str, int] | None = None,
) -> Iterator[Moment | None]:
    """Kill a server at a call of the step, or after the step; None if it makes no such call."""
    template = server.create(server.template(*SCHEMAS))
    world = RecordedWorld(server.dsn(template), fork_server, **scenario.settings)
    try:
        assert world.start(is_recorded=True)
        given = scenario.before(world)
        if killed_at is not None:
            world.record_until(*killed_at)
        world.is_left = True
        try:
            result = scenario.during(world, given)
            given = given if result is None else result
            world.settle()
        except ConnectionError:
            pass
        else:
            if killed_at is not None:
                yield None
                return
        world.disarm()
        world.stop()
        world.is_left = False
        world.kills = 1
        yield Moment(world, scenario, given, _recording(world), template)
    finally:
        world.close()
        server.drop(template)


def _recording(world: RecordedWorld) -> Recording:
    reader = Reader(world.root, None, Tree())
    operations = tuple(each for output in world.outputs for each in reader.operations(output))
    recording = Recording(Tree(), operations)
    there, read = Tree.of(world.root).paths(), reader.tree.paths()
    if there != read:
        differ = {path for path in {*there, *read} if there.get(path) != read.get(path)}
        raise RuntimeError(f"the recording does not lead to the folder: {sorted(differ)}")
    return recording


def usual_end(server: TestServer, at: Moment) -> list[str]:
    """Return what is there at the end when nothing is lost after the step."""
    [state] = at.states()
    final: list[str] = []
    found = violations(server, at, state, final)
    assert found == [], found
    return final


def violations(server: TestServer, at: Moment, state: State, usual: list[str]) -> list[str]:
    """Restart on one state, repeat the call, go on to the end, look and compare with the usual end.

    Without a usual end, it is written to the list.
    """
    world = at.world
    effects, settings = dict(world.effects), dict(world.settings)
    for path in world.root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    state.tree.write(world.root)
    _wait_until_unused(server, at.template)
    name = server.create(at.template)
    world.dsn = server.dsn(name)
    try:
        given = copy.deepcopy(at.given)
        world.revive()
        # The client cannot know whether its call came through: it repeats.
        result = at.scenario.during(world, given)
        world.settle()
        at.scenario.after(world, given if result is None else result)
        found = world.violations()
        final = _comparable(world.final())
        usual += [] if usual else final
        found += [] if final == usual else [f"I6 ends with {final} instead of {usual}"]
        # Descriptions of contents: nothing but their readers notices that one is damaged.
        found += [
            f"{path.name} is damaged" for path in world.root.rglob("*.json") if _is_damaged(path)
        ]
    except AssertionError as failure:
        found = [str(failure)]
    finally:
        world.hang_up()
        world.stop()
        world.effects, world.settings = effects, settings
        server.drop(name)
    return [f"{each} ({state.text})" for each in found]


def _comparable(final: list[str]) -> list[str]:
    """Leave out what a repeated upload changes: a discarded row, and the numbers after it."""
    kept = [line for line in final if not line.endswith(" discarded None")]
    return sorted(re.sub(r"/\d+_", "/", line) for line in kept)


def _is_damaged(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return True
    return False


def _wait_until_unused(server: TestServer, database: str) -> None:
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        wait_until(
            lambda: (
                connection.execute(
                    "select from pg_stat_activity where datname = %s", [database]
                ).rowcount
                == 0
            ),
            what="the sessions of the killed server have ended",
        )


@dataclass
class Step:
    """What was found in one step."""

    name: str
    points: int = 0
    states: int = 0
    faults: int = 0
    unfound: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


def explore(
    server: TestServer,
    fork_server: ForkServer,
    scenario: Scenario,
    choose: Callable[[Sequence[State]], Iterable[State]],
    max_points: int,
) -> Step:
    """Leave out each fsync of the step, then check the chosen states at calls of each kind."""
    step = Step(scenario.name)
    with moment(server, fork_server, scenario) as at:
        assert at is not None
        usual = usual_end(server, at)
        for text, new in at.planted():
            step.faults += 1
            if not any(violations(server, at, state, usual) for state in new):
                step.unfound.append(f"nothing is lost without [{text}]")
    for call in KILLED_AT:
        for nth in range(1, max_points + 1):
            with moment(server, fork_server, scenario, (call, nth)) as at:
                if at is None:
                    break
                step.points += 1
                for state in choose(at.states()):
                    step.states += 1
                    step.violations += violations(server, at, state, usual)
    return step
