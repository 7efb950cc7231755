"""The bus on Django's own connection; as an app, the command `postroad_tasks`."""

from __future__ import annotations

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections

from postroad.bus import Bus
from postroad.integrations import checked


def bus(using: str = DEFAULT_DB_ALIAS) -> Bus:
    """Return a bus for the current transaction of a database; without one each call commits.

    Raises InvalidArgument if the driver is not psycopg 3.
    """
    connections[using].ensure_connection()
    return Bus(checked(connections[using].connection, psycopg.Connection))
