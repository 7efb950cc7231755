from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from postroad.testing import TestServer
from tests.integration.coordination.lab import Lab, open_lab

OpenLab = Callable[..., Lab]


@pytest.fixture
def open_a_lab(server: TestServer) -> Iterator[OpenLab]:
    with ExitStack() as stack:
        yield lambda *readers, **options: stack.enter_context(open_lab(server, *readers, **options))


@pytest.fixture
def newest_server(_servers: Callable[[Path | None], TestServer]) -> TestServer:
    """The embedded version only: for tests of services, whose SQL the others try on both."""
    return _servers(None)


@pytest.fixture
def newest_lab(newest_server: TestServer) -> Iterator[Lab]:
    """The same on the embedded version only, for what takes long."""
    with open_lab(newest_server, "r1") as lab:
        yield lab


@pytest.fixture
def lab(open_a_lab: OpenLab) -> Lab:
    """A Writer, a Coordinator and one Reader called r1."""
    return open_a_lab("r1")
