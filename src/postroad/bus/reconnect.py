"""Transient failures of the database, the same for every loop. Pure."""

import psycopg

from postroad.backoff import CONNECTION_LOST, Backoff
from postroad.bus.errors import BusError
from postroad.postgres.errors import DatabaseUnavailable

__all__ = ["SURVIVABLE", "TRANSIENT", "Backoff"]

# A lost connection, a server that starts, stops or was demoted, a pool that could not connect.
TRANSIENT = (*CONNECTION_LOST, DatabaseUnavailable, OSError)

# A long-running loop logs these and retries: for example, a queue may be created again.
SURVIVABLE = (psycopg.Error, BusError, DatabaseUnavailable, OSError)
