"""One scenario, once: recorded without a fault, or killed at one point and brought to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from postroad.cli.components import SCHEMAS
from postroad.testing import TestServer
from tools.crash_table.scenarios import Scenario
from tools.crash_table.world import ForkServer, Point, Thread, World

__all__ = ["Expected", "Outcome", "kill", "record"]


@dataclass(frozen=True)
class Expected:
    """A run without a fault: how many calls it makes, and what is there at its end."""

    calls: Counter[tuple[Thread, str]]
    final: list[str]


@dataclass
class Outcome:
    """Whether there was such a point, and what does not hold after it."""

    was_killed: bool = False
    violations: list[str] = field(default_factory=list)


def record(server: TestServer, fork_server: ForkServer, scenario: Scenario) -> Expected:
    """Run without a fault. Raises AssertionError if anything does not hold."""
    with _world(server, fork_server, scenario) as world:
        given = scenario.before(world)
        if scenario.is_recovery:
            assert world.start(is_recorded=True)
        else:
            world.record()
        given = _step(world, scenario, given)
        world.disarm()
        calls = world.recorded()
        scenario.after(world, given)
        violations = world.violations()
        assert violations == [], violations
        return Expected(calls, world.final())


def kill(
    server: TestServer,
    fork_server: ForkServer,
    scenario: Scenario,
    point: Point,
    expected: Expected | None = None,
    *,
    has_companion: bool = False,
) -> Outcome:
    """Kill at one point, repeat the call, go on to the end and look.

    The call is repeated at the restarted server, or at its companion.
    """
    outcome = Outcome()
    with _world(server, fork_server, scenario, has_companion) as world:
        try:
            given = scenario.before(world)
            if scenario.is_recovery:
                outcome.was_killed = not world.start(inject=point)
                world.disarm()
            else:
                world.inject(point)
                given = _step(world, scenario, given)
                outcome.was_killed = world.kills > 0 or world.disarm()
            world.disarm()
            world.revive()
            # The client cannot know whether its call came through: it repeats.
            given = _step(world, scenario, given)
            scenario.after(world, given)
            outcome.violations = world.violations()
            if expected is not None and (final := world.final()) != expected.final:
                outcome.violations.append(f"I6 ends with {final} instead of {expected.final}")
        except AssertionError as failure:
            outcome.was_killed = True
            outcome.violations.append(f"{type(failure).__name__}: {failure}")
    return outcome


def _step(world: World, scenario: Scenario, given: Any) -> Any:
    """Do the step until the journal knows that its files are in place."""
    result = scenario.during(world, given)
    world.settle()
    return given if result is None else result


@contextmanager
def _world(
    server: TestServer, fork_server: ForkServer, scenario: Scenario, has_companion: bool = False
) -> Iterator[World]:
    with server.clone(*SCHEMAS) as dsn:
        world = World(dsn, fork_server, has_companion=has_companion, **scenario.settings)
        try:
            world.start()
            yield world
        finally:
            world.close()
