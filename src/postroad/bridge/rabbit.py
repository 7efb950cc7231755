"""RabbitMQ: connections, errors, the queue and exchange of a route, and the length of a queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import aio_pika
import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import AMQPError

from postroad.bridge.errors import BrokerRefused, BrokerUnavailable
from postroad.errors import first_line

CONNECT_TIMEOUT_SECONDS = 10.0
# A stream that has messages delivers its last ones immediately.
STREAM_ANSWER_SECONDS = 1.0

QueueKind = Literal["quorum", "stream", "classic", "existing"]


@dataclass(frozen=True, slots=True)
class RabbitRoute:
    """The queue or exchange of a broker that a bridge publishes to or consumes from.

    Without a `queue` messages are published to the exchange (outgoing bridges only). The kind
    `existing` declares nothing; an existing stream is recognised, and read from the offset of the
    last commit. The empty exchange routes by the queue's name. `{queue}`, `{group}` and other
    headers and properties are filled into `routing_key`: by default the broker's queue, else the
    name of the bus queue. `binding_key` binds the queue to the exchange, by default the routing
    key.
    """

    queue: str | None = None
    kind: QueueKind = "quorum"
    exchange: str = ""
    exchange_kind: Literal["direct", "topic", "fanout", "headers"] = "topic"
    routing_key: str | None = None
    binding_key: str | None = None

    @property
    def key(self) -> str:
        """The routing key, or its template."""
        return self.routing_key or self.queue or "{queue}"


def broker_label(url: str, queue: str) -> str:
    """Name a queue of a broker for display and for the ledger, without user and password."""
    parts = urlsplit(url.split(";")[0])
    return f"rabbitmq:{parts.hostname}:{parts.port or 5672}{parts.path or '/'} {queue}"


async def connect_broker(url: str, name: str = "postroad") -> AbstractConnection:
    """Connect to a broker; `amqps://…?cafile=…` for TLS. Raises BrokerUnavailable.

    Addresses of a cluster are separated by `;`, and are tried in this order.
    """
    url, _, others = url.partition(";")
    if others:
        with contextlib.suppress(BrokerUnavailable):
            return await connect_broker(url, name)
        return await connect_broker(others, name)
    with broker_failures():
        return await aio_pika.connect(
            url, timeout=CONNECT_TIMEOUT_SECONDS, client_properties={"connection_name": name}
        )


async def close_broker(connection: AbstractConnection) -> None:
    """Close a connection, whatever state it is in."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(connection.close(), CONNECT_TIMEOUT_SECONDS)


@contextlib.contextmanager
def broker_failures() -> Iterator[None]:
    """Translate the driver's errors. Raises BrokerRefused, BrokerUnavailable."""
    try:
        yield
    except (
        aiormq.exceptions.ChannelAccessRefused,
        aiormq.exceptions.ChannelPreconditionFailed,
        aiormq.exceptions.ChannelNotFoundEntity,
        aiormq.exceptions.AuthenticationError,
        aiormq.exceptions.ProbableAuthenticationError,
    ) as failure:
        raise BrokerRefused(
            f"RabbitMQ refuses: {first_line(failure)}",
            hint="check the user's rights, and that queues and exchanges are of the kind asked for",
        ) from failure
    except (AMQPError, OSError, TimeoutError, RuntimeError, asyncio.CancelledError) as failure:
        # When a connection breaks the driver cancels the tasks that wait on its channels, and
        # raises RuntimeError in later calls.
        task = asyncio.current_task()
        if isinstance(failure, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        raise BrokerUnavailable(
            f"RabbitMQ cannot be reached: {first_line(failure)}",
            hint="check that it runs and that the URL names it",
        ) from failure


async def declare(channel: AbstractChannel, route: RabbitRoute) -> None:
    """Create what is missing at the broker; what exists stays. Raises BrokerRefused."""
    with broker_failures():
        if route.exchange and route.kind != "existing":
            await channel.declare_exchange(
                route.exchange, aio_pika.ExchangeType(route.exchange_kind), durable=True
            )
        if route.queue is None:
            return
        if route.kind == "existing":
            await channel.get_queue(route.queue)
            return
        arguments: dict[str, Any] = {"x-queue-type": route.kind}
        queue = await channel.declare_queue(route.queue, durable=True, arguments=arguments)
        if route.exchange:
            await queue.bind(route.exchange, route.binding_key or route.key)


async def ready_messages(channel: AbstractChannel, queue: str) -> int:
    """Count the messages of a queue that are not delivered to a consumer."""
    with broker_failures():
        found = await channel.declare_queue(queue, passive=True)
    return int(found.declaration_result.message_count or 0)


@contextlib.asynccontextmanager
async def _consume_stream(
    connection: AbstractConnection,
    queue: str,
    offset: str,
    callback: Callable[[AbstractIncomingMessage], Awaitable[None]],
) -> AsyncIterator[None]:
    with broker_failures():
        # A separate channel, because a refusal closes it.
        async with connection.channel(publisher_confirms=False) as channel:
            await channel.set_qos(prefetch_count=1)
            found = await channel.get_queue(queue, ensure=False)
            await found.consume(callback, arguments={"x-stream-offset": offset})
            yield


async def is_stream(connection: AbstractConnection, queue: str) -> bool:
    """Check whether an existing queue is a stream.

    AMQP does not report the kind of a queue, but only a stream accepts an offset. "next" delivers
    none of the messages that are already stored.
    """
    try:
        async with _consume_stream(connection, queue, "next", asyncio.Queue[Any]().put):
            return True
    except BrokerRefused as refusal:
        if isinstance(refusal.__cause__, aiormq.exceptions.ChannelPreconditionFailed):
            return False
        raise


async def end_of_stream(connection: AbstractConnection, stream: str) -> int | None:
    """Return the offset at which the last chunk of a stream begins; None while it is empty.

    A stream counts the messages that it keeps, not those that a reader has yet to read. One message
    of the last chunk is fetched for its offset.
    """
    messages = asyncio.Queue[AbstractIncomingMessage]()
    async with _consume_stream(connection, stream, "last", messages.put):
        try:
            message = await asyncio.wait_for(messages.get(), STREAM_ANSWER_SECONDS)
        except TimeoutError:
            return None
    return stream_offset(message)


def stream_offset(message: AbstractIncomingMessage) -> int | None:
    """Return the offset of a message in its stream; None for one of another kind of queue."""
    offset = message.headers.get("x-stream-offset")
    return offset if isinstance(offset, int) else None
