"""Sessions in many orders: a few runs of each scenario hold, and planted bugs are found."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from postroad.cli.components import SCHEMAS
from postroad.testing import TestServer
from proof.interleavings import SCENARIOS
from proof.interleavings.explorer import Exploration, Explorer, Scenario
from proof.interleavings.model import Queue
from proof.interleavings.planted import PLANTED, Planted, plant

IS_STRESS = bool(os.environ.get("POSTROAD_STRESS"))
# `python -m proof.interleavings` has many runs of all of them.
QUICK = {
    "rotation",
    "groups_lease",
    "consume_after",
    "lease_end",
    "dedup",
    "ledger_words",
    "marker",
}
QUICK_BUGS = {"lease_end", "ledger", "groups_lease", "groups_rotation"}
RUNS = 3
# The number of runs is not small in all cases: the order must be the right one.
RUNS_UNTIL_FOUND = 200


def explore(server: TestServer, scenario: Scenario, limit: int, most: int = 1) -> Exploration:
    names: list[str] = []

    def open_database() -> str:
        names.append(server.create(server.template(*SCHEMAS)))
        return server.dsn(names[-1])

    try:
        return Explorer(scenario, open_database).explore(limit, seed=1, violations_most=most)
    finally:
        for name in names:
            server.drop(name)


@pytest.mark.parametrize(
    "scenario",
    [scenario for scenario in SCENARIOS if IS_STRESS or scenario.name in QUICK],
    ids=lambda scenario: scenario.name,
)
def test_some_orders_of_each_scenario_hold(server: TestServer, scenario: Scenario) -> None:
    found = explore(server, scenario, RUNS)
    assert found.runs == RUNS
    assert found.violations == []


@pytest.mark.parametrize(
    "bug",
    [bug for bug in PLANTED if IS_STRESS or bug.scenario in QUICK_BUGS],
    ids=lambda bug: bug.name.replace(" ", "_"),
)
def test_a_planted_bug_is_found(server: TestServer, bug: Planted) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == bug.scenario)

    def prepare(dsn: str) -> None:
        scenario.prepare(dsn)
        assert plant(dsn, bug) > 0

    found = explore(server, replace(scenario, prepare=prepare), RUNS_UNTIL_FOUND)
    [verdict] = found.violations
    # The same choices show it again, in a database of their own.
    names = [server.create(server.template(*SCHEMAS))]
    again = Explorer(replace(scenario, prepare=prepare), lambda: server.dsn(names[0]))
    assert again.repeat(verdict.choices).violations
    server.drop(names[0])


def test_a_lock_on_a_message_does_not_bring_it_back() -> None:
    queue = Queue(sessions=2)
    queue.post(0, "a", "q.1@x")
    queue.committed_by(0)
    queue.take(1, "default", 10, ["a"], was_blocked=False)
    # The other session posts b, which waits for a, before the take of a is committed.
    queue.post(0, "b", "q.2@x", state="blocked", after=frozenset("a"))
    queue.open[0].locks.add(("default", "a"))

    queue.committed_by(1)
    queue.committed_by(0)

    queue.drained("default", ["b"], [])
    assert queue.violations == []
