"""ERPs of each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from postroad.testing import TestServer
from tests.integration.exchange_client.erps import ENGINES, Erp


@pytest.fixture
def make_erp(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Erp]]:
    """Give a function that makes an ERP of an engine; PostgreSQL in one version, the newest."""
    with ExitStack() as opened:

        def make(engine: str) -> Erp:
            if engine == "postgres":
                servers: Callable[[Path | None], TestServer] = request.getfixturevalue("_servers")
                dsn = opened.enter_context(servers(None).clone())
            elif engine == "sqlite":
                dsn = str(tmp_path / "erp.sqlite")
            else:
                dsn = request.getfixturevalue("firebird").create()
            erp = Erp(engine, dsn)
            erp.install()
            return erp

        yield make


@pytest.fixture(params=ENGINES)
def erp(request: pytest.FixtureRequest, make_erp: Callable[[str], Erp]) -> Erp:
    return make_erp(request.param)
