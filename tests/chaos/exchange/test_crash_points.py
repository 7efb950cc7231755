"""Some rows of the crash table at every run; `make crash-table` kills at all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroad.testing import TestServer
from tools.crash_table.run import kill
from tools.crash_table.scenarios import SCENARIOS
from tools.crash_table.world import ForkServer, Point

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

POINTS = (
    ("intake", Point("file", "renameat", 1)),
    ("API_3 prepare", Point("file", "fsync", 2)),
    ("API_4 commit", Point("main", "recvfrom", 1)),
    ("API_5 abort", Point("file", "unlinkat", 1)),
    ("recovery: half committed", Point("any", "renameat", 1)),
)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


KILLS = [
    *((name, point, False) for name, point in POINTS),
    # The other one of two servers goes on.
    *((name, point, True) for name, point in POINTS if not name.startswith("recovery")),
]


@pytest.mark.parametrize(("name", "point", "has_companion"), KILLS, ids=lambda each: str(each))
def test_nothing_breaks_when_the_server_is_killed_at(
    server: TestServer, fork_server: ForkServer, name: str, point: Point, has_companion: bool
) -> None:
    scenario = next(each for each in SCENARIOS if each.name == name)
    outcome = kill(server, fork_server, scenario, point, has_companion=has_companion)
    assert outcome.was_killed
    assert outcome.violations == []
