"""Connections and cached payload types of a bus that blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from psycopg import Connection
from psycopg_pool import ConnectionPool

from postroad.bus import calls
from postroad.bus.call import AnyCall, Call, OfQueue
from postroad.bus.errors import BusError, InvalidArgument, QueueBusy, is_overtaken
from postroad.bus.notifier import Notifier
from postroad.bus.payload import Payload, of_queue
from postroad.bus.requester import Requester
from postroad.bus.session import open_pool, required, run
from postroad.bus.wakeup import Wakeup

T = TypeVar("T")


class Runner:
    """Runs calls on the caller's connection, or each in its own transaction."""

    def __init__(
        self,
        source: str | ConnectionPool[Any] | Connection[Any],
        *,
        notify: bool,
        listen: bool,
    ) -> None:
        self.payloads: dict[str, Payload] = {}
        self._dsn = source if isinstance(source, str) else None
        self._connection = source if isinstance(source, Connection) else None
        self._pool: ConnectionPool[Any] | None = None
        if isinstance(source, str):
            self._pool = open_pool(source, is_pooled=not listen)
        elif not isinstance(source, Connection):
            self._pool = source
        self._listens = listen
        self._notifier = Notifier(self._send) if notify and self._pool else None
        self._requester: Requester | None = None

    def close(self) -> None:
        """Send pending notifications and close own connections; a second call does nothing."""
        if self._notifier is not None:
            self._notifier.close()
        if self._requester is not None:
            self._requester.close()
        if self._dsn is not None and self._pool is not None:
            self._pool.close()

    def run(self, call: AnyCall[T]) -> T:
        """Run one call; in an own transaction, again if the queue was changed in the meantime."""
        if isinstance(call, OfQueue):
            known = self.payloads.get(call.queue) or call.otherwise
            call = call.build(known or self.payload(call.queue))
        self.payloads.pop(call.reshapes or "", None)
        try:
            result = self._run_once(call)
        except QueueBusy as error:
            if self._pool is None or not is_overtaken(error.__cause__):
                raise
            result = self._run_once(call)
        if call.makes is not None:
            self.payloads[str(result)] = call.makes
        for queue in call.wakes:
            self.announce(queue)
        return result

    def _run_once(self, call: Call[T]) -> T:
        if call.needs_session:
            return run(required(self._connection), call)
        with self._connected(call.queue) as connection:
            return run(connection, call)

    def payload(self, queue: str) -> Payload:
        """Return the payload type of a queue, cached if possible. Raises QueueNotFound."""
        payload = self.payloads.get(queue)
        if payload is None:
            payload = of_queue(queue, self.run(calls.describe(queue)))
            self.payloads[queue] = payload
        return payload

    def requester(self) -> Requester:
        """Return the requester. Raises InvalidArgument without a session."""
        if self._dsn is None:
            raise InvalidArgument(
                "a request needs a session that waits for the answer",
                hint="create the bus from a DSN; in your own transaction call mbus.request",
            )
        if not self._listens:
            raise InvalidArgument(
                "a request needs a session, which a transaction-mode pooler does not provide",
                hint="create a bus for requests from a DSN that connects to the server directly",
            )
        if self._requester is None:
            self._requester = Requester(self._dsn, self.announce, notify=self._notifier is not None)
        return self._requester

    def announce(self, queue: str) -> None:
        """Notify the waiters of this queue soon; without a notifier they rely on polling."""
        if self._notifier is not None:
            self._notifier.announce(queue)

    def wakeup(self, queue: str, poll_interval: timedelta) -> Wakeup:
        """Return the wakeup of this queue. Raises InvalidArgument without a pool."""
        if self._pool is None:
            raise InvalidArgument(
                "waiting for messages needs the bus's own connections",
                hint="create the bus from a DSN or a pool; a connection has one transaction only",
            )
        return Wakeup(
            lambda queues: self.run(calls.positions(*queues)),
            [queue],
            dsn=self._dsn if self._listens else None,
            poll_interval=poll_interval,
        )

    def _send(self, queues: list[str]) -> None:
        self.run(calls.notify(*queues))

    @contextmanager
    def _connected(self, queue: str | None) -> Iterator[Connection[Any]]:
        try:
            if self._pool is not None:
                with self._pool.connection() as connection:
                    yield connection
            elif self._connection is not None:
                yield self._connection
        except BusError:
            # The queue may have been dropped, or created again with another payload.
            self.payloads.pop(queue or "", None)
            raise
