from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from postroad.cli.components import SCHEMAS
from postroad.intake.engine import Engine, open_engine
from postroad.intake.notice import create_queues
from postroad.settings.intake import IntakeSettings
from postroad.testing import DatabaseClock, TestServer
from postroad.vault import Vault, new_key
from tests.fixtures.sshd import SshServer
from tests.integration.intake.partner import Partner


@pytest.fixture
def server_of_run(_servers: Callable[[Path | None], TestServer]) -> TestServer:
    # The embedded version only: what the SQL does is tested on both in tests/sql.
    return _servers(None)


@pytest.fixture
def database(server_of_run: TestServer) -> Iterator[str]:
    with server_of_run.clone(*SCHEMAS) as dsn:
        yield dsn


@pytest.fixture
def vault() -> Vault:
    return Vault([new_key()])


@pytest.fixture
def intake_settings() -> IntakeSettings:
    return IntakeSettings(lease=timedelta(seconds=3), connect_timeout=timedelta(seconds=5))


@pytest.fixture
async def engine(
    database: str, vault: Vault, intake_settings: IntakeSettings, tmp_path: Path
) -> AsyncIterator[Engine]:
    engine = open_engine(database, intake_settings, vault, tmp_path / "data", "test worker")
    await create_queues(engine)
    yield engine
    await engine.close()


@pytest.fixture
def partner(sshd: SshServer, database: str, vault: Vault) -> Iterator[Partner]:
    """A partner with a folder at the real sshd, and the row of their server."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield Partner.at(sshd, connection, vault)


@pytest.fixture
def clock_of_intake(database: str) -> DatabaseClock:
    """The clock of schema intake."""
    return DatabaseClock(database, "intake")
