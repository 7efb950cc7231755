# Written by `make generate` from bus/async_client.py; edit that file.
"""`Bus`: the calls of the bus for code that blocks. `AsyncBus` has the same names."""

from __future__ import annotations

from typing import Any, Self

from psycopg import Connection
from psycopg_pool import ConnectionPool

from postroad.bus import calls, dead_calls, schedule_calls, view_calls
from postroad.bus.call import blocking
from postroad.bus.calls import LEASE_DEFAULT
from postroad.bus.hstore import Hstore
from postroad.bus.parameters import Duration, length
from postroad.bus.polling import POLL_INTERVAL_DEFAULT
from postroad.bus.request import REQUEST_TIMEOUT_DEFAULT, Reply
from postroad.bus.runner import Runner
from postroad.bus.subscription import Subscription


class Bus:
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
        self._run = self._runner.run

    def using(self, connection: Connection[Any]) -> Self:
        """Return a bus that works in the caller's transaction; it shares this bus's cache."""
        bus = type(self)(connection)
        bus._runner.payloads = self._runner.payloads
        return bus

    def close(self) -> None:
        """Send pending notices and close what the bus opened; a second call does nothing."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Signatures and contracts are those of the functions in `calls`.
    create_queue = blocking(calls.create_queue)
    alter_queue = blocking(calls.alter_queue)
    drop_queue = blocking(calls.drop_queue)
    create_consumer = blocking(calls.create_consumer)
    drop_consumer = blocking(calls.drop_consumer)
    alter_consumer = blocking(calls.alter_consumer)
    pause = blocking(calls.pause)
    resume = blocking(calls.resume)

    get_iid = blocking(calls.get_iid)
    post = blocking(calls.post)
    post_many = blocking(calls.post_many)
    reply = blocking(calls.reply)

    consume = blocking(calls.consume)
    take = blocking(calls.take)
    peek = blocking(calls.peek)
    reject = blocking(calls.reject)
    give_back = blocking(calls.give_back)

    lease = blocking(calls.lease)
    ack = blocking(calls.ack)
    ack_many = blocking(calls.ack_many)
    nack = blocking(calls.nack)
    extend_lease = blocking(calls.extend_lease)
    extend = blocking(calls.extend)
    extend_many = blocking(calls.extend_many)
    release_many = blocking(calls.release_many)

    create_trigger = blocking(calls.create_trigger)
    drop_trigger = blocking(calls.drop_trigger)
    create_temporary_queue = blocking(calls.create_temporary_queue)
    create_temporary_consumer = blocking(calls.create_temporary_consumer)
    consume_temporary = blocking(calls.consume_temporary)
    clear_tempq = blocking(calls.clear_tempq)

    schedule = blocking(schedule_calls.schedule)
    unschedule = blocking(schedule_calls.unschedule)
    pause_schedule = blocking(schedule_calls.pause_schedule)
    resume_schedule = blocking(schedule_calls.resume_schedule)
    run_now = blocking(schedule_calls.run_now)

    redrive_edited = blocking(dead_calls.redrive_edited)
    maintain = blocking(calls.maintain)
    notify = blocking(calls.notify)
    positions = blocking(calls.positions)
    queues = blocking(view_calls.queues)
    consumers = blocking(view_calls.consumers)
    status = blocking(view_calls.status)
    dead = blocking(view_calls.dead)
    history = blocking(view_calls.history)

    def request(
        self,
        queue: str,
        data: object,
        headers: Hstore | None = None,
        properties: Hstore | None = None,
        timeout: Duration = REQUEST_TIMEOUT_DEFAULT,
    ) -> Reply:
        """Post a message and wait for the answer of its handler.

        Runs in its own transaction, on the bus's own connections. The request expires with the
        timeout and a later answer is dropped. Raises RequestTimedOut, and the errors of `post`.
        """
        payload = self._runner.payload(queue)
        requester = self._runner.requester()
        return requester.ask(queue, payload, data, headers, properties, length("timeout", timeout))

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
        wakeup = self._runner.wakeup(queue, length("poll_interval", poll_interval))
        return Subscription(self, queue, consumer, length("ttl", ttl), wakeup)

    def redrive(self, queue: str, consumer: str | None = None, iid: str | None = None) -> int:
        """Make dead messages ready again: of a queue, of one consumer, or one; return how many.

        Works in batches of 1,000, each in its own transaction unless the bus has the caller's
        connection. Expired messages stay in the dmq.
        """
        died_before, total = self._run(calls.now()), 0
        while count := self._run(dead_calls.redrive(queue, consumer, iid, died_before)):
            total += count
        return total
