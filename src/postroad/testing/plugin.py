"""Pytest plugin: a real PostgreSQL with the bus installed, for the tests of Postroad's users."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import Connection

from postroad.testing.clock import DatabaseClock
from postroad.testing.run_folder import (
    close_run_folder,
    name_run_folder,
    run_folder,
    sweep_run_folders,
)
from postroad.testing.server import TestServer


def pytest_configure(config: pytest.Config) -> None:
    """Name the folder of this run before workers start, so that they share it."""
    if not hasattr(config, "workerinput"):
        sweep_run_folders()
        name_run_folder()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder of this run after the workers have left."""
    if not hasattr(config, "workerinput"):
        close_run_folder()


@pytest.fixture(scope="session")
def postroad_server() -> Iterator[TestServer]:
    """Return the embedded PostgreSQL of this run."""
    server = TestServer.of_run(run_folder())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postroad_database(postroad_server: TestServer) -> Iterator[str]:
    """Return the DSN of a fresh database with the bus installed. For tests that commit."""
    from postroad.bus.schema import BUS

    with postroad_server.clone(BUS) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def _postroad_shared_database(postroad_server: TestServer) -> Iterator[str]:
    from postroad.bus.schema import BUS

    with postroad_server.clone(BUS) as dsn:
        yield dsn


@pytest.fixture
def postroad_connection(_postroad_shared_database: str) -> Iterator[Connection]:
    """Return a connection to a database with the bus, and roll back the changes of the test."""
    with psycopg.connect(_postroad_shared_database) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def postroad_clock(postroad_database: str) -> DatabaseClock:
    """Return the clock of the test's own database."""
    return DatabaseClock(postroad_database)
