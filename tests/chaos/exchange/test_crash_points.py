"""Some rows of the crash table at every run; `make crash-table` kills at all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.testing import TestServer
from tools.crash_table.__main__ import run_point, run_recovery
from tools.crash_table.scenarios import SCENARIOS
from tools.crash_table.world import Nursery

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

POINTS = (
    ("intake", "renameat", 1),
    ("API_3 prepare", "fsync", 2),
    ("API_4 commit", "renameat", 2),
    ("API_5 abort", "unlinkat", 1),
    ("resolve", "renameat", 1),
)


@pytest.fixture(params=[None], ids=["embedded"])
def server_bin_folder(request: pytest.FixtureRequest) -> Path | None:
    return request.param


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.mark.parametrize(("name", "call", "nth"), POINTS)
def test_nothing_breaks_when_the_server_is_killed_at(
    server: TestServer, nursery: Nursery, name: str, call: str, nth: int
) -> None:
    scenario = next(each for each in SCENARIOS if each.name == name)
    was_killed, violations = run_point(server, nursery, scenario, call, nth)
    assert was_killed
    assert violations == []


def test_nothing_breaks_when_the_server_is_killed_in_its_recovery(
    server: TestServer, nursery: Nursery
) -> None:
    was_killed, violations = run_recovery(server, nursery, "renameat", 1)
    assert was_killed
    assert violations == []
