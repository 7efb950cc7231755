from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from postroad.testing import TestServer
from tests.integration.coordination.lab import Lab, open_lab

OpenLab = Callable[..., Lab]


@pytest.fixture
def newest_server(_servers: Callable[[Path | None], TestServer]) -> TestServer:
    """The embedded version: what most tests run on, one version being as good as another."""
    return _servers(None)


@pytest.fixture
def open_a_lab(newest_server: TestServer) -> Iterator[OpenLab]:
    yield from _opener(newest_server)


@pytest.fixture
def open_a_lab_of_each(server: TestServer) -> Iterator[OpenLab]:
    """Both versions, for the tests that together pass through every SQL function."""
    yield from _opener(server)


@pytest.fixture
def lab(open_a_lab: OpenLab) -> Lab:
    """A Writer, a Coordinator and one Reader called r1."""
    return open_a_lab("r1")


@pytest.fixture
def lab_of_each(open_a_lab_of_each: OpenLab) -> Lab:
    """The same on each version."""
    return open_a_lab_of_each("r1")


def _opener(server: TestServer) -> Iterator[OpenLab]:
    with ExitStack() as stack:
        yield lambda *readers, **options: stack.enter_context(open_lab(server, *readers, **options))
