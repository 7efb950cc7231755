"""PostgreSQL as Postroad uses it: the server, connections, LISTEN and the migrator.

- `EmbeddedServer` runs a PostgreSQL in the data folder when no database is named. It is shared by
all processes that use the folder; the last one to leave stops it. A killed user has no effect on
it; a killed server is started again and recovers from its log.
- `open_async_pool`, `connect`, `connect_async` open connections that survive a restart
  of the server.
- `ListenHub` is the one LISTEN connection of a process; after each interruption its
  subscribers are called, because notices may have been lost.
- The migrator (`install`, `upgrade`, `status`, `script`) brings a component's schema to this
  version in one transaction.

The package needs the driver only, so that the bus client works without any extra.
"""

from postroad.postgres.connections import connect, connect_async, open_async_pool, run_blocking
from postroad.postgres.embedded import EmbeddedServer
from postroad.postgres.listen import ListenHub, Notice, Subscription
from postroad.postgres.manifest import Schema
from postroad.postgres.migrator import install, require, script, status, upgrade

__all__ = [
    "EmbeddedServer", "ListenHub", "Notice", "Schema", "Subscription", "connect", "connect_async",
    "install", "open_async_pool", "require", "run_blocking", "script", "status", "upgrade",
]  # fmt: skip
