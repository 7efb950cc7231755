"""Tools for tests on a real PostgreSQL: servers, cloned databases, a clock, waits without sleeps.

The pytest plugin (`postroad.testing.plugin`, loaded automatically) provides the
fixtures `postroad_server`, `postroad_database`, `postroad_connection` and `postroad_clock`.
Three kinds of isolation, the cheapest first: a transaction that is rolled back
(`postroad_connection`), a clone of a template database (`postroad_database`), a fresh install.
"""

from postroad.testing.clock import DatabaseClock
from postroad.testing.server import TestServer
from postroad.testing.waiting import wait_until, wait_until_async, wait_until_blocked

__all__ = ["DatabaseClock", "TestServer", "wait_until", "wait_until_async", "wait_until_blocked"]
