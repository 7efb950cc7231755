"""The bus on Django's own connection; as an app, `postroad_install` and `postroad_tasks`."""

from __future__ import annotations

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections

from postroad.bus import Bus
from postroad.integrations import checked


def connection_of(using: str) -> psycopg.Connection:
    """Return the open connection of a database. Raises InvalidArgument for another driver."""
    connections[using].ensure_connection()
    return checked(connections[using].connection, psycopg.Connection)


def bus(using: str = DEFAULT_DB_ALIAS) -> Bus:
    """Return a bus for the current transaction of a database; without one each call commits.

    Raises InvalidArgument if the driver is not psycopg 3.
    """
    return Bus(connection_of(using))
