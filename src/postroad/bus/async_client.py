"""`AsyncBus`: the calls of the bus for code that awaits. `Bus` has the same names."""

from __future__ import annotations

from typing import Any, Self

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from postroad.bus import calls, dead_calls, schedule_calls, view_calls
from postroad.bus.async_runner import AsyncRunner
from postroad.bus.async_subscription import AsyncSubscription
from postroad.bus.call import awaiting
from postroad.bus.calls import LEASE_DEFAULT
from postroad.bus.hstore import Hstore
from postroad.bus.parameters import Duration, length
from postroad.bus.polling import POLL_INTERVAL_DEFAULT
from postroad.bus.request import REQUEST_TIMEOUT_DEFAULT, Reply


class AsyncBus:
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
        source: str | AsyncConnectionPool[Any] | AsyncConnection[Any],
        *,
        notify: bool = True,
        listen: bool = True,
    ) -> None:
        self._runner = AsyncRunner(source, notify=notify, listen=listen)
        self._run = self._runner.run

    def using(self, connection: AsyncConnection[Any]) -> Self:
        """Return a bus that works in the caller's transaction; it shares this bus's cache."""
        bus = type(self)(connection)
        bus._runner.payloads = self._runner.payloads
        return bus

    async def close(self) -> None:
        """Send pending notices and close what the bus opened; a second call does nothing."""
        await self._runner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Signatures and contracts are those of the functions in `calls`.
    create_queue = awaiting(calls.create_queue)
    alter_queue = awaiting(calls.alter_queue)
    drop_queue = awaiting(calls.drop_queue)
    create_consumer = awaiting(calls.create_consumer)
    drop_consumer = awaiting(calls.drop_consumer)
    alter_consumer = awaiting(calls.alter_consumer)
    pause = awaiting(calls.pause)
    resume = awaiting(calls.resume)

    get_iid = awaiting(calls.get_iid)
    post = awaiting(calls.post)
    post_many = awaiting(calls.post_many)
    reply = awaiting(calls.reply)

    consume = awaiting(calls.consume)
    take = awaiting(calls.take)
    peek = awaiting(calls.peek)
    reject = awaiting(calls.reject)
    give_back = awaiting(calls.give_back)

    lease = awaiting(calls.lease)
    ack = awaiting(calls.ack)
    ack_many = awaiting(calls.ack_many)
    nack = awaiting(calls.nack)
    extend_lease = awaiting(calls.extend_lease)
    extend = awaiting(calls.extend)
    extend_many = awaiting(calls.extend_many)
    release_many = awaiting(calls.release_many)

    create_trigger = awaiting(calls.create_trigger)
    drop_trigger = awaiting(calls.drop_trigger)
    create_temporary_queue = awaiting(calls.create_temporary_queue)
    create_temporary_consumer = awaiting(calls.create_temporary_consumer)
    consume_temporary = awaiting(calls.consume_temporary)
    clear_tempq = awaiting(calls.clear_tempq)

    schedule = awaiting(schedule_calls.schedule)
    unschedule = awaiting(schedule_calls.unschedule)
    pause_schedule = awaiting(schedule_calls.pause_schedule)
    resume_schedule = awaiting(schedule_calls.resume_schedule)
    run_now = awaiting(schedule_calls.run_now)

    redrive_edited = awaiting(dead_calls.redrive_edited)
    maintain = awaiting(calls.maintain)
    notify = awaiting(calls.notify)
    positions = awaiting(calls.positions)
    queues = awaiting(view_calls.queues)
    consumers = awaiting(view_calls.consumers)
    status = awaiting(view_calls.status)
    dead = awaiting(view_calls.dead)
    history = awaiting(view_calls.history)

    async def request(
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
        payload = await self._runner.payload(queue)
        requester = self._runner.requester()
        return await requester.ask(
            queue, payload, data, headers, properties, length("timeout", timeout)
        )

    def subscribe(
        self,
        queue: str,
        consumer: str = "default",
        ttl: Duration = LEASE_DEFAULT,
        poll_interval: Duration = POLL_INTERVAL_DEFAULT,
    ) -> AsyncSubscription:
        """Iterate over messages as they arrive, and wait for more indefinitely.

        Each message is leased for `ttl` and acked when the next one is requested. In a `with` block
        the last one is acked too, or given back with the error if the block raises. Messages that
        were not acked are delivered again, so a crash loses nothing. It survives a restart of
        PostgreSQL. Needs the bus's own connections; raises InvalidArgument without them.
        """
        wakeup = self._runner.wakeup(queue, length("poll_interval", poll_interval))
        return AsyncSubscription(self, queue, consumer, length("ttl", ttl), wakeup)

    async def redrive(self, queue: str, consumer: str | None = None, iid: str | None = None) -> int:
        """Make dead messages ready again: of a queue, of one consumer, or one; return how many.

        Works in batches of 1,000, each in its own transaction unless the bus has the caller's
        connection. Expired messages stay in the dmq.
        """
        died_before, total = await self._run(calls.now()), 0
        while count := await self._run(dead_calls.redrive(queue, consumer, iid, died_before)):
            total += count
        return total
