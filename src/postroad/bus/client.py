"""`Bus`: the calls of the bus for code that blocks. `AsyncBus` has the same names."""

from __future__ import annotations

from typing import Any, Self

from psycopg import Connection
from psycopg_pool import ConnectionPool

from postroad.blocking import finish
from postroad.bus.async_client import BusMethods
from postroad.bus.call import Blocking
from postroad.bus.calls import LEASE_DEFAULT
from postroad.bus.parameters import Duration
from postroad.bus.polling import POLL_INTERVAL_DEFAULT
from postroad.bus.runner import Runner
from postroad.bus.subscription import Subscription


class Bus(BusMethods, Blocking):
    """The message bus, over a DSN, a pool, or a connection whose transaction it shares.

    With a connection every call runs in the caller's transaction, which the bus never commits.
    With a DSN or a pool each call is a transaction of its own; `using(connection)` returns a bus
    that runs its calls in the transaction of that connection.

    `notify` notifies waiting workers after posts in the bus's own transactions. `listen` lets
    `subscribe` receive these notifications; it needs a DSN. Turn it off behind a transaction-mode
    pooler; the bus then uses no prepared statements either.
    """

    def __init__(
        self,
        source: str | ConnectionPool[Any] | Connection[Any],
        *,
        notify: bool = True,
        listen: bool = True,
    ) -> None:
        self._runner = Runner(source, notify=notify, listen=listen)
        self._run = self._runner.block

    def using(self, connection: Connection[Any]) -> Self:
        """Return a bus that works in the caller's transaction; it shares this bus's cache."""
        return self._share_cache(type(self)(connection))

    def close(self) -> None:
        """Send pending notices and close what the bus opened; a second call does nothing."""
        finish(self._runner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def subscribe(
        self,
        queue: str,
        consumer: str = "default",
        ttl: Duration = LEASE_DEFAULT,
        poll_interval: Duration = POLL_INTERVAL_DEFAULT,
    ) -> Subscription:
        """Iterate over messages as they arrive, and wait for more indefinitely.

        Each message is leased for `ttl` and acked when the next one is requested. In a `with` block
        the last one is acked too, or given back with the error if the block raises. Messages that
        were not acked are delivered again, so a crash loses nothing. It survives a restart of
        PostgreSQL. Needs the bus's own connections; raises InvalidArgument without them.
        """
        return Subscription(self._messages(queue, consumer, ttl, poll_interval))
