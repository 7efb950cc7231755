"""The database of a broker URL.

| URL | database |
|---|---|
| `mbus:///` | the one in Postroad's settings, otherwise the embedded one |
| `mbus://user:password@host:5432/name?sslmode=require` | that one; any option of libpq |
| `mbus+postgresql://…` | the same, with libpq's own URL after the plus |

The embedded server is started by the first user in a process; forked children use it too.
"""

from __future__ import annotations

import atexit
import os
import threading
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from postroad.broker.errors import UrlInvalid
from postroad.postgres.embedded import EmbeddedServer

SCHEMES = ("mbus", "postgresql", "postgres")


def database_of(url: str) -> str:
    """Return the DSN of a broker or result URL. Raises UrlInvalid."""
    scheme, separator, rest = url.removeprefix("mbus+").partition("://")
    if not separator:
        scheme, rest = "mbus", url
    if scheme not in SCHEMES:
        raise UrlInvalid(
            f"the scheme {scheme} is not supported",
            hint="write mbus://user:password@host/database, or mbus:/// for the embedded one",
        )
    if not rest.strip("/"):
        return _default_database()
    dsn = f"postgresql://{rest}"
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as refused:
        raise UrlInvalid(
            f"invalid database URL: {masked(url)}",
            hint="write mbus://user:password@host:5432/database?option=value",
        ) from refused
    return dsn


def masked(url: str, mask: str = "**") -> str:
    """Return the URL without its password, for logs."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:{mask}@{host}"))


_guard = threading.Lock()
# The DSN of the embedded server, and the process that has started it.
_embedded: tuple[EmbeddedServer, int] | None = None


def _default_database() -> str:
    """Return the database of the settings, or that of the embedded server, which is started."""
    # Imported here because the settings need the extra `server`, which a named database does not.
    from postroad.settings_sources import load

    settings = load({}, None).settings
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    global _embedded
    with _guard:
        if _embedded is None:
            server = EmbeddedServer.of(settings)
            server.start()
            _embedded = server, os.getpid()
            atexit.register(_stop_embedded)
        server, owner = _embedded
        if owner == os.getpid():
            server.revive()
        return server.dsn()


def _stop_embedded() -> None:
    if _embedded is not None and _embedded[1] == os.getpid():
        _embedded[0].stop()


def _forget_lock() -> None:
    # Another thread of the parent may have held the lock at the fork.
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)
