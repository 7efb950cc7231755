"""`AsyncBus`: the calls of the bus for code that awaits. `Bus` has the same names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from postroad.bus import calls, request, views
from postroad.bus.async_following import AsyncFollowing
from postroad.bus.async_runner import AsyncRunner
from postroad.bus.async_subscription import AsyncSubscription
from postroad.bus.calls import LEASE_DEFAULT, Call
from postroad.bus.hstore import Hstore
from postroad.bus.message import Leased, LeasedMessage, Message
from postroad.bus.pace import POLL_INTERVAL_DEFAULT
from postroad.bus.parameters import Duration, Hstores, length, queue_of
from postroad.bus.payload import Payload
from postroad.bus.request import REQUEST_TIMEOUT_DEFAULT, Reply
from postroad.bus.status import Consumer, ConsumerStatus, DeadMessage, Maintained, Queue

__all__ = ["AsyncBus"]

T = TypeVar("T")


class AsyncBus(AsyncFollowing):
    """The message bus, over a DSN, a pool, or a connection whose transaction it shares.

    With a connection every call happens in the caller's transaction, which the bus never commits.
    With a DSN or a pool each call is a transaction of its own. `using(connection)` gives the
    former from the latter for the length of one transaction.

    `notify` wakes waiting workers after posts in the bus's own transactions. `listen` lets
    `subscribe` be woken so; it needs a DSN. Turn it off behind a transaction-mode pooler: then
    nothing is prepared on the server either.
    """

    def __init__(
        self,
        source: str | AsyncConnectionPool[Any] | AsyncConnection[Any],
        *,
        notify: bool = True,
        listen: bool = True,
    ) -> None:
        self._runner = AsyncRunner(source, notify=notify, listen=listen)

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

    async def _run(self, call: Call[T]) -> T:
        return await self._runner.run(call)

    # Queues and consumers.

    async def create_queue(
        self,
        queue: str,
        ncons: int = 8,
        is_roles_security_model: bool = False,
        payload: Payload = "hstore",
    ) -> None:
        """Create a queue with consumer `default`; rebuild an existing one, keeping its messages.

        An existing queue keeps its ncons, and a closed one stays closed, see `alter_queue`.
        Raises QueueExists when it carries another payload, and InvalidName, NameTooLong.
        """
        await self._runner.reshape(
            queue, calls.create_queue(queue, ncons, is_roles_security_model, payload)
        )

    async def alter_queue(self, queue: str, is_roles_security_model: bool) -> None:
        """Close a plain queue, which then needs its roles, or open a closed one to every user.

        Raises QueueNotFound, RoleMissing.
        """
        await self._run(calls.alter_queue(queue, is_roles_security_model))

    async def drop_queue(self, queue: str) -> None:
        """Drop a queue with its messages, consumers and roles. Raises QueueNotFound."""
        await self._runner.reshape(queue, calls.drop_queue(queue))

    async def create_consumer(
        self, queue: str, consumer: str, selector: str | None = None, noindex: bool = False
    ) -> None:
        """Add a durable subscriber; it gets its own copy of each matching message from now on.

        The selector is SQL over `t`: "(t.properties->'STATE')='DONE'". Raises QueueNotFound,
        ConsumerExists, InvalidSelector, and InvalidName, NameTooLong, NameCollision.
        """
        await self._run(calls.create_consumer(queue, consumer, selector, noindex))

    async def drop_consumer(self, queue: str, consumer: str) -> None:
        """Drop a subscriber with its copies. Raises ConsumerNotFound, LastConsumer."""
        await self._run(calls.drop_consumer(queue, consumer))

    async def alter_consumer(
        self,
        queue: str,
        consumer: str,
        max_attempts: int | None = None,
        backoff: Duration | None = None,
        backoff_max: Duration | None = None,
    ) -> None:
        """Change when a consumer retries and when it gives up; None leaves a setting as it is."""
        await self._run(calls.alter_consumer(queue, consumer, max_attempts, backoff, backoff_max))

    # Posting.

    async def get_iid(self, queue: str) -> str:
        """Reserve the iid of a message that will be posted later with `post(..., iid=...)`."""
        return await self._run(calls.get_iid(queue))

    async def post(
        self,
        queue: str,
        data: object,
        headers: Hstore | None = None,
        properties: Hstore | None = None,
        delayed_until: datetime | None = None,
        expires: datetime | None = None,
        iid: str | None = None,
    ) -> str:
        """Post one message and return its iid.

        In the caller's transaction when the bus has the caller's connection: the message exists
        once that commits. Otherwise it is durable on return, and waiting workers are woken.
        Headers that mean something: priority, group, dedup_key, dedup_window. Raises
        QueueNotFound, WrongPayload, InvalidArgument, DuplicateIid, ForeignIid.
        """
        payload = await self._runner.payload(queue)
        call = calls.post(queue, payload, data, headers, properties, delayed_until, expires, iid)
        [iid] = await self._runner.post(queue, [call])
        return iid

    async def post_many(
        self,
        queue: str,
        data: Iterable[object],
        headers: Hstores = None,
        properties: Hstores = None,
        delayed_until: datetime | None = None,
        expires: datetime | None = None,
    ) -> list[str]:
        """Post many messages, all or none, and return their iids in order.

        `headers` and `properties` are one mapping for all messages or a sequence with one for
        each. Transaction and errors as for `post`.
        """
        payload = await self._runner.payload(queue)
        many = calls.post_many(
            queue, payload, list(data), headers, properties, delayed_until, expires
        )
        return [iid for chunk in await self._runner.post(queue, many) for iid in chunk]

    async def request(
        self,
        queue: str,
        data: object,
        headers: Hstore | None = None,
        properties: Hstore | None = None,
        timeout: Duration = REQUEST_TIMEOUT_DEFAULT,
    ) -> Reply:
        """Post a message and wait for the answer of its handler.

        A transaction of its own, over connections of the bus's own. The request expires with the
        timeout and a later answer is dropped. Raises RequestTimedOut, and what `post` raises.
        """
        payload = await self._runner.payload(queue)
        requester = self._runner.requester()
        return await requester.ask(
            queue, payload, data, headers, properties, length("timeout", timeout)
        )

    async def reply(
        self,
        message: Message,
        data: object,
        headers: Hstore | None = None,
        properties: Hstore | None = None,
    ) -> str | None:
        """Answer a message that was posted with `request`; the data is of its queue's payload.

        In the caller's transaction when the bus has the caller's connection. Returns the answer's
        iid, None when nobody waits for it any more. Raises InvalidArgument if nobody asked.
        """
        payload = await self._runner.payload(queue_of(message.iid))
        call = request.reply_many([message], payload, [data], headers, properties)
        [iid] = await self._run(call)
        return iid

    # Taking.

    async def consume(
        self, queue: str, consumer: str = "default", amount: int = 1
    ) -> list[Message]:
        """Take up to `amount` messages, in order of posting; fewer or none if there are no more.

        In the caller's transaction when the bus has the caller's connection: commit consumes,
        rollback or a lost connection gives them back at once. Otherwise they are consumed on
        return, and work that must survive a crash belongs to `lease`, `subscribe` or a worker.
        Raises QueueNotFound, ConsumerNotFound, WrongIsolation.
        """
        payload = await self._runner.payload(queue)
        return await self._run(calls.consume(queue, consumer, amount, payload))

    async def take(self, iid: str, consumer: str | None = None) -> Message | None:
        """Take one message by its iid, from all consumers or from one; None when it is gone.

        Waits while another transaction holds it. Transaction as for `consume`.
        """
        payload = await self._runner.payload(queue_of(iid))
        return await self._run(calls.take(iid, consumer, payload))

    async def peek(self, queue: str, iid: str | None = None) -> bool:
        """Return whether the queue has a message, this one or any. Read-only."""
        return await self._run(calls.peek(queue, iid))

    async def reject(
        self,
        queue: str,
        consumer: str,
        iid: str,
        delay: Duration | None = None,
        error: str | None = None,
        park: bool = False,
    ) -> str:
        """Count a failed attempt of a message consumed in a transaction that was rolled back.

        It is delivered again after `delay` (None: the consumer's backoff), or goes to the dmq.
        Returns `ready`, `delayed`, `dmq`, or `absent` when it is gone. Raises TakenInTransaction
        when the caller's own transaction took the message; `give_back` is for that.
        """
        return await self._run(calls.reject(queue, consumer, iid, delay, error, park))

    async def give_back(
        self,
        message: Message,
        consumer: str = "default",
        delay: Duration | None = None,
        error: str | None = None,
        park: bool = False,
    ) -> str:
        """Give a message back that the caller's open transaction consumed or took.

        The attempt counts when that transaction commits: the message is delivered again after
        `delay` (None: the consumer's backoff), or goes to the dmq. Returns `ready`, `delayed` or
        `dmq`. Raises NotTaken when the message was not taken in this transaction.
        """
        payload = await self._runner.payload(queue_of(message.iid))
        return await self._run(calls.give_back(message, consumer, payload, delay, error, park))

    # Leases.

    async def lease(
        self,
        queue: str,
        consumer: str = "default",
        amount: int = 1,
        ttl: Duration = LEASE_DEFAULT,
    ) -> list[LeasedMessage]:
        """Take up to `amount` messages for work longer than a transaction.

        Each is the holder's until `ack`, `nack`, or the end of the lease, when it is delivered
        again. Made in the caller's transaction when the bus has the caller's connection.
        """
        payload = await self._runner.payload(queue)
        return await self._run(calls.lease(queue, consumer, amount, ttl, payload))

    async def ack(self, message: Leased) -> None:
        """Finish a leased message. Raises LeaseLost when it is no longer the caller's."""
        await self._run(calls.ack(message))

    async def ack_many(self, messages: Sequence[Leased]) -> list[str]:
        """Finish many leased messages at once; return the iids whose lease was lost."""
        return await self._run(calls.ack_many(messages))

    async def nack(
        self,
        message: Leased,
        delay: Duration | None = None,
        error: str | None = None,
        park: bool = False,
    ) -> str:
        """Give a leased message back after a failure.

        It is delivered again after `delay` (None: the consumer's backoff), or goes to the dmq:
        at once with `park`, otherwise after the consumer's maximum of attempts. Returns `ready`,
        `delayed` or `dmq`. Raises LeaseLost.
        """
        return await self._run(calls.nack(message, delay, error, park))

    async def extend(self, message: Leased, ttl: Duration = LEASE_DEFAULT) -> datetime:
        """Hold a leased message for `ttl` from now; return until when. Raises LeaseLost."""
        return await self._run(calls.extend(message, ttl))

    async def extend_many(
        self, messages: Sequence[Leased], ttl: Duration = LEASE_DEFAULT
    ) -> list[str]:
        """Hold many leased messages at once; return the iids whose lease was lost."""
        return await self._run(calls.extend_many(messages, ttl))

    def subscribe(
        self,
        queue: str,
        consumer: str = "default",
        ttl: Duration = LEASE_DEFAULT,
        poll_interval: Duration = POLL_INTERVAL_DEFAULT,
    ) -> AsyncSubscription:
        """Iterate over messages as they arrive, and wait for more indefinitely.

        Each is leased for `ttl` and acked when the next one is asked for. In a `with` block the
        last one is acked too, or given back with the error if the block is left by one. Whatever
        was not acked is delivered again, so a crash loses nothing. It survives a restart of
        PostgreSQL. Needs connections of the bus's own. Raises InvalidArgument without them.
        """
        wakeup = self._runner.wakeup(queue, length("poll_interval", poll_interval))
        return AsyncSubscription(self, queue, consumer, length("ttl", ttl), wakeup)

    # Operating.

    async def redrive(self, queue: str, consumer: str | None = None, iid: str | None = None) -> int:
        """Give dead messages back: all of a queue, those of one consumer, or one; return how many.

        In batches of 1,000, each in a transaction of its own unless the bus has the caller's
        connection. Expired messages stay in the dmq.
        """
        died_before, total = await self._run(calls.now()), 0
        while count := await self._run(calls.redrive(queue, consumer, iid, died_before)):
            total += count
        return total

    async def maintain(self, queue: str | None = None) -> list[Maintained]:
        """Run the maintenance that is due, of one queue or all; safe to run concurrently.

        Needs a transaction of its own, so it is not for a connection inside a transaction.
        """
        return await self._run(calls.maintain(queue))

    async def notify(self, *queues: str) -> None:
        """Wake the workers that wait for these queues; call it after committing own posts."""
        await self._run(calls.notify(queues))

    async def positions(self, *queues: str) -> list[int]:
        """Return the position of each queue's last post; a cheap check for new messages."""
        return await self._run(calls.positions(queues))

    async def queues(self) -> list[Queue]:
        """List all queues. Read-only."""
        return await self._run(views.queues())

    async def consumers(self, queue: str | None = None) -> list[Consumer]:
        """List the consumers of one queue or of all. Read-only."""
        return await self._run(views.consumers(queue))

    async def status(self, queue: str | None = None) -> list[ConsumerStatus]:
        """Return the status of the consumers of one queue or of all. Read-only, no scans."""
        return await self._run(views.status(queue))

    async def dead(
        self, queue: str | None = None, consumer: str | None = None, limit: int = 100
    ) -> list[DeadMessage]:
        """List dead messages, the latest first. Read-only."""
        return await self._run(views.dead(queue, consumer, limit))
