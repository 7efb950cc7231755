"""A queue to work with."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect


@pytest.fixture
def bus(connection: Connection) -> Connection:
    """Give the rolled-back connection with a queue `q`."""
    connection.execute("select mbus.create_queue('q')")
    return connection


@pytest.fixture
def live(database: str, connect: Connect) -> str:
    """Give the DSN of a database with a committed queue `q`."""
    with connect(database) as connection:
        connection.execute("select mbus.create_queue('q')")
    return database
