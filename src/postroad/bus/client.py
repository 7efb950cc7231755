"""`Bus` for code that blocks and `AsyncBus` for code that awaits: the same calls by name."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from postroad.bus import calls, dead_calls, queue_calls, schedule_calls, view_calls
from postroad.bus.call import Awaiting, Blocking, Method, Methods
from postroad.bus.calls import LEASE_DEFAULT
from postroad.bus.parameters import Duration, length
from postroad.bus.polling import POLL_INTERVAL_DEFAULT
from postroad.bus.runner import AnyPool, AsyncRunner, Runner
from postroad.bus.subscription import AsyncSubscription, Messages, Subscription
from postroad.postgres.calls import AnyConnection

C = TypeVar("C", bound=AnyConnection)
P = TypeVar("P", bound=AnyPool)
S = TypeVar("S", bound=Messages)


class BusMethods(Methods, Generic[C, P, S]):
    """The methods of `Bus` and `AsyncBus`."""

    _runner_type: type[AsyncRunner]
    _subscription: type[S]

    # Signatures and contracts are those of the functions in the modules `calls`, `queue_calls` …
    create_queue = Method(queue_calls.create_queue)
    alter_queue = Method(queue_calls.alter_queue)
    drop_queue = Method(queue_calls.drop_queue)
    create_consumer = Method(queue_calls.create_consumer)
    drop_consumer = Method(queue_calls.drop_consumer)
    alter_consumer = Method(queue_calls.alter_consumer)
    limit_consumer = Method(queue_calls.limit_consumer)
    pause = Method(queue_calls.pause)
    resume = Method(queue_calls.resume)
    replay = Method(queue_calls.replay)
    count_replay = Method(queue_calls.count_replay)
    stop_replay = Method(queue_calls.stop_replay)
    continue_replay = Method(queue_calls.continue_replay)

    get_iid = Method(calls.get_iid)
    post = Method(calls.post)
    post_many = Method(calls.post_many)
    request = Method(calls.request)
    reply = Method(calls.reply)

    consume = Method(calls.consume)
    take = Method(calls.take)
    peek = Method(calls.peek)
    reject = Method(calls.reject)
    give_back = Method(calls.give_back)

    lease = Method(calls.lease)
    ack = Method(calls.ack)
    ack_many = Method(calls.ack_many)
    nack = Method(calls.nack)
    extend_lease = Method(calls.extend_lease)
    extend = Method(calls.extend)
    extend_many = Method(calls.extend_many)
    release_many = Method(calls.release_many)

    create_trigger = Method(queue_calls.create_trigger)
    drop_trigger = Method(queue_calls.drop_trigger)
    create_temporary_queue = Method(queue_calls.create_temporary_queue)
    create_temporary_consumer = Method(queue_calls.create_temporary_consumer)
    consume_temporary = Method(calls.consume_temporary)
    clear_tempq = Method(calls.clear_tempq)

    schedule = Method(schedule_calls.schedule)
    unschedule = Method(schedule_calls.unschedule)
    pause_schedule = Method(schedule_calls.pause_schedule)
    resume_schedule = Method(schedule_calls.resume_schedule)
    run_now = Method(schedule_calls.run_now)

    measure = Method(calls.measure)
    measures = Method(view_calls.measures)
    redrive = Method(dead_calls.redrive)
    redrive_edited = Method(dead_calls.redrive_edited)
    maintain = Method(calls.maintain)
    notify = Method(calls.notify)
    positions = Method(calls.positions)
    queues = Method(view_calls.queues)
    consumers = Method(view_calls.consumers)
    status = Method(view_calls.status)
    dead = Method(view_calls.dead)
    history = Method(view_calls.history)
    replays = Method(view_calls.replays)
    close = Method(calls.close)

    def __init__(self, source: str | P | C, *, notify: bool = True, listen: bool = True) -> None:
        self._runner = self._runner_type(source, notify=notify, listen=listen)
        self._run = self._runner.run

    def using(self, connection: C) -> Self:
        """Return a bus that works in the caller's transaction; it shares this bus's cache."""
        bus = type(self)(connection)
        bus._runner.payloads = self._runner.payloads
        return bus

    def subscribe(
        self,
        queue: str,
        consumer: str = "default",
        ttl: Duration = LEASE_DEFAULT,
        poll_interval: Duration = POLL_INTERVAL_DEFAULT,
    ) -> S:
        """Iterate over messages as they arrive, and wait for more indefinitely.

        Each message is leased for `ttl` and acked when the next one is requested. In a `with` block
        the last one is acked too, or given back with the error if the block raises. Messages that
        were not acked are delivered again, so a crash loses nothing. It survives a restart of
        PostgreSQL. Needs the bus's own connections; raises InvalidArgument without them.
        """
        wakeup = self._runner.wakeup(queue, length("poll_interval", poll_interval))
        return self._subscription(self._runner, queue, consumer, length("ttl", ttl), wakeup)


class AsyncBus(
    BusMethods[AsyncConnection[Any], AsyncConnectionPool[Any], AsyncSubscription], Awaiting
):
    """`Bus` for code that awaits."""

    _runner_type = AsyncRunner
    _subscription = AsyncSubscription

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Bus(BusMethods[Connection[Any], ConnectionPool[Any], Subscription], Blocking):
    """The message bus, over a DSN, a pool, or a connection whose transaction it shares.

    With a connection every call runs in the caller's transaction, which the bus never commits.
    With a DSN or a pool each call is a separate transaction; `using(connection)` returns a bus
    that runs its calls in the transaction of that connection.

    `notify` notifies waiting workers after posts in the bus's own transactions. `listen` lets
    `subscribe` receive these notifications; it needs a DSN. Turn it off behind a transaction-mode
    pooler; the bus then uses no prepared statements either.
    """

    _runner_type = Runner
    _subscription = Subscription

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
