"""Frameworks that post and consume on their own connections, in their own transactions.

`sqlalchemy` and `django` return a bus for the transaction that the framework has begun. The bus
never commits, so its changes exist if the framework commits. `django.tasks` is a backend for Django
Tasks.
"""

from __future__ import annotations

from typing import Any, TypeVar

from postroad.bus import InvalidArgument

C = TypeVar("C")


def checked(connection: Any, kind: type[C]) -> C:
    """Return a connection of psycopg. Raises InvalidArgument for another driver."""
    if not isinstance(connection, kind):
        raise InvalidArgument(
            f"the bus client needs psycopg, and this connection is a {type(connection)}",
            hint="use psycopg 3, or asyncpg with async_bus; else call the SQL functions",
        )
    return connection
