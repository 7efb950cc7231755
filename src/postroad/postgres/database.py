"""Which database: the one that was named, otherwise the embedded one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from postroad.postgres.embedded import EmbeddedServer


@contextmanager
def use_database(named: str | None, embedded: Callable[[], EmbeddedServer]) -> Iterator[str]:
    """Give the DSN of the named database, or that of the embedded server while it is used.

    The embedded server is asked for only when no database is named.
    """
    if named is not None:
        yield named
        return
    with embedded() as server:
        yield server.dsn()
