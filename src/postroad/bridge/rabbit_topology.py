"""What a bridge makes sure of at the broker: an exchange, a queue, and a binding between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractQueue

from postroad.bridge.rabbit_publisher import broker_failures

__all__ = ["QueueKind", "RabbitRoute", "declare"]

QueueKind = Literal["quorum", "stream", "classic", "existing"]


@dataclass(frozen=True, slots=True)
class RabbitRoute:
    """Where messages go to at the broker, or come from.

    Attributes:
        queue: the broker's queue; None lets the exchange decide alone (out only).
        kind: quorum (replicated, the default), stream, classic, or existing: declare nothing. A
            stream that exists is recognised, and read from where the last commit left it.
        exchange: empty is the default exchange, which routes by the queue's name.
        exchange_kind: direct, topic, fanout or headers; used when the exchange is made.
        routing_key: of messages out; `{queue}`, `{group}` and other headers and properties are
            filled in. Default: the broker's queue, else the name of the bus queue.
        binding_key: binds the queue to the exchange. Default: the routing key.
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


async def declare(channel: AbstractChannel, route: RabbitRoute) -> AbstractQueue | None:
    """Make what is missing at the broker; what is there stays. Raises BrokerRefused."""
    with broker_failures():
        if route.exchange and route.kind != "existing":
            await channel.declare_exchange(
                route.exchange, aio_pika.ExchangeType(route.exchange_kind), durable=True
            )
        if route.queue is None:
            return None
        if route.kind == "existing":
            return await channel.get_queue(route.queue)
        arguments: dict[str, Any] = {"x-queue-type": route.kind}
        queue = await channel.declare_queue(route.queue, durable=True, arguments=arguments)
        if route.exchange:
            await queue.bind(route.exchange, route.binding_key or route.key)
        return queue
