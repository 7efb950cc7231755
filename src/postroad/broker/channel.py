"""A channel of Kombu on the bus: declares, binds, publishes, and acks or rejects its messages.

Exchanges, queues and bindings are rows that all processes share. The transport takes messages for
all its channels.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from amqp.exceptions import RecoverableConnectionError
from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.uuid import uuid

from postroad.broker import codec
from postroad.broker.codec import Delivery
from postroad.broker.routes import Route
from postroad.postgres.calls import invocation

if TYPE_CHECKING:
    from postroad.broker.transport import Transport

KINDS = ("direct", "topic", "fanout")
# The largest batch, also without a limit, so that other consumers get messages too.
MAX_BATCH = 100
PUBLISH = (
    # Every value is sent as text, whatever the driver.
    "select broker.publish(exchange => $1, routing_key => $2, data => $3,"
    " level => $4::text::integer, delayed_until => $5::text::timestamptz,"
    " expires => $6::text::timestamptz)"
)


class Quality:
    """Kombu's QoS. Acks may come from any thread; the operations used here are atomic on a dict."""

    def __init__(self, channel: Channel, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count or 0
        self.delivered: dict[str, Any] = {}

    def free_slots(self) -> int:
        """Return the number of messages that may still be delivered."""
        if not self.prefetch_count:
            return MAX_BATCH
        return min(max(self.prefetch_count - len(self.delivered), 0), MAX_BATCH)

    def can_consume(self) -> bool:
        """Return whether a message may be delivered."""
        return self.free_slots() > 0

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count a delivered message."""
        self.delivered[delivery_tag] = message

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        if self.delivered.pop(delivery_tag, None) is not None:
            self.channel.acknowledge(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Return a message to its queue, or dead-letter it."""
        if self.delivered.pop(delivery_tag, None) is not None:
            self.channel.refuse(delivery_tag, requeue=requeue)

    def restore_unacked(self, stderr: Any = None) -> list[Any]:  # noqa: ARG002
        """Return every unacknowledged message to its queue."""
        tags = list(self.delivered)
        self.delivered.clear()
        self.channel.release(tags)
        return []

    # Kombu calls this method when a channel ends.
    restore_unacked_once = restore_unacked


class Channel(virtual.Channel):  # type: ignore[misc]  # Kombu has no types
    """One channel; `connection` is the transport it belongs to."""

    QoS = Quality
    supports_fanout = True
    do_restore = False
    # Posting directly to the bus queue saves looking up the route.
    posts_directly = True
    # None after the channel was closed.
    connection: Transport
    closed: bool
    exchange_types: dict[str, Any]

    def prepare_queue_arguments(self, arguments: Any, **options: Any) -> Any:
        """Write the options of a queue as RabbitMQ's arguments."""
        return to_rabbitmq_queue_arguments(arguments, **options)

    def exchange_declare(
        self, exchange: Any = None, type: str = "direct", *_: Any, passive: bool = False, **__: Any
    ) -> None:
        """Create an exchange unless it exists."""
        kind = type or "direct"
        name = exchange or f"amq.{kind}"
        if passive:
            if self._call("find_exchange", name) is None:
                raise not_found("exchange", name, "exchange_declare")
            return
        problem, code = f"exchange type {kind!r} is not supported", "503"
        if kind in KINDS:
            found = self._call("declare_exchange", name, kind)
            if found == kind:
                return
            problem, code = f"exchange {name!r} is of type {found!r}, not {kind!r}", "406"
        problem = f"PRECONDITION_FAILED - {problem}"
        raise ChannelError(problem, (40, 10), "Channel.exchange_declare", code)

    def exchange_delete(self, exchange: str, if_unused: bool = False, **_: Any) -> None:
        """Delete an exchange and its bindings."""
        if not (if_unused and self.get_table(exchange)):
            self._call("delete_exchange", exchange)

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        auto_delete: bool = False,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        **_: Any,
    ) -> queue_declare_ok_t:
        """Create a queue unless it exists, or, if passive, count its messages."""
        name = queue or f"amq.gen-{uuid()}"
        if passive:
            if self.connection.routes.find(name) is None:
                raise not_found("queue", name, "queue_declare")
            return queue_declare_ok_t(name, self._size(name), 0)
        options = arguments or {}
        message_ttl = _milliseconds(options.get("x-message-ttl"))
        expires_after = _milliseconds(options.get("x-expires"))
        is_temporary = exclusive or (auto_delete and expires_after is not None)
        self.connection.routes.declare(name, is_temporary, message_ttl, expires_after)
        return queue_declare_ok_t(name, 0, 0)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", *_: Any, **__: Any
    ) -> None:
        """Bind a queue to an exchange."""
        source = exchange or "amq.direct"
        if source.startswith("amq."):
            Channel.exchange_declare(self, source, source.removeprefix("amq."))
        self._call("bind", queue, source, routing_key or "")

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", *_: Any, **__: Any
    ) -> None:
        """Remove a binding."""
        self._call("unbind", queue, exchange or "amq.direct", routing_key or "")

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Delete a queue with its messages and bindings."""
        is_used = if_unused and self.connection.consumption.is_watched(queue)
        if not is_used and not (if_empty and self._size(queue)):
            self.connection.routes.forget(queue)
            self._call("delete_queue", queue)

    def get_table(self, exchange: str) -> list[tuple[str, None, str]]:
        """Return the bindings of an exchange."""
        text = "select routing_key, null, queue from broker.bindings(%s)"
        return self.connection.link.run(text, (exchange,))

    def list_bindings(self) -> list[tuple[str, str, str]]:
        """Return all bindings as queue, exchange, routing key."""
        return self.connection.link.run("select queue, source, routing_key from broker.bindings()")

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return self.connection.routes.find(queue) is not None

    def _size(self, queue: str) -> int:
        return int(self._call("size", queue))

    def _purge(self, queue: str) -> int:
        return int(self._call("purge", queue))

    def _call(self, function: str, *parameters: object) -> Any:
        text = f"select broker.{invocation(function, len(parameters))}"
        [[value]] = self.connection.link.run(text, parameters)
        return value

    def basic_publish(
        self, message: Delivery, exchange: str, routing_key: str, **_: Any
    ) -> int | None:
        """Post to every queue that the routing key selects; durable on return."""
        if self.connection is None:
            # Kombu has reconnected while declaring a queue, but still uses the old channel.
            raise RecoverableConnectionError("the connection of this channel is closed")
        information = message["properties"].setdefault("delivery_info", {})
        information |= {"exchange": exchange, "routing_key": routing_key}
        due = codec.due_at(message)
        if due is not None and due <= datetime.now(UTC):
            due = None
        level = codec.level_of(message)
        if self.posts_directly and not exchange:
            route = self.connection.routes.find(routing_key)
            if route is None:
                return 0
            if not route.is_temporary:
                self._post(route, message, level, due)
                return None
        times = codec.moment(due), codec.moment(codec.expires_at(message, None, due))
        given = exchange, routing_key, codec.encode(message), str(level), *times
        [[count]] = self.connection.link.run_prepared(PUBLISH, *given)
        return int(count or 0)

    def _post(self, route: Route, message: Delivery, level: int, due: datetime | None) -> None:
        text, routes = codec.encode(message), self.connection.routes
        for _ in range(2):
            if level and level not in route.levels:
                route = routes.add_level(route, level)
            expires = codec.expires_at(message, route.message_ttl, due)
            post, times = "($1), broker.wake($2)", []
            if due is not None or expires is not None:
                post = "(data => $1, delayed_until => $2, expires => $3), broker.wake($4)"
                times = [codec.moment(due), codec.moment(expires)]
            post = f"select mbus.post_{route.level_name(level)}{post}"
            try:
                self.connection.link.run_prepared(post, text, *times, str(route.id))
            except psycopg.errors.UndefinedFunction:
                # The queue was deleted, and perhaps created again.
                routes.forget(route.name)
                if (found := routes.find(route.name)) is None:
                    return
                route = found
            else:
                return

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **_: Any
    ) -> None:
        """Register a consumer with the transport."""
        self._tag_to_queue[consumer_tag] = queue
        self._active_queues.append(queue)

        def deliver(message: Any) -> Any:
            self._count(message, no_ack)
            return callback(message)

        self._consumers.add(consumer_tag)
        self.connection.consumption.watch(self, queue, consumer_tag, deliver)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer."""
        if consumer_tag in self._consumers:
            super().basic_cancel(consumer_tag)
            self.connection.consumption.unwatch(consumer_tag)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Take one message now, None if there is none."""
        message = self.connection.consumption.take_one(self, queue)
        if message is not None:
            self._count(message, no_ack)
        return message

    def _count(self, message: Any, no_ack: bool) -> None:
        if no_ack:
            self.acknowledge(message.delivery_tag)
        else:
            self.qos.append(message, message.delivery_tag)

    def acknowledge(self, delivery_tag: str) -> None:
        """Ack a message with the next poll."""
        if delivery_tag.isdigit():
            self.connection.consumption.ack(int(delivery_tag))
            self.connection.nudge()

    def refuse(self, delivery_tag: str, *, requeue: bool) -> None:
        """Return a message to its queue, or dead-letter it."""
        if delivery_tag.isdigit():
            reason = None if requeue else "rejected by the consumer"
            self.connection.consumption.refuse(int(delivery_tag), reason)
            self.connection.nudge()

    def release(self, delivery_tags: list[str]) -> None:
        """Return messages to their queue, and send pending acks."""
        if self.connection is not None:
            tokens = [int(tag) for tag in delivery_tags if tag.isdigit()]
            self.connection.consumption.give_back(tokens)

    def close(self) -> None:
        """Cancel the consumers and return unacknowledged messages to their queues."""
        if not self.closed:
            self.closed = True
            for consumer_tag in list(self._consumers):
                self.basic_cancel(consumer_tag)
            if self._qos is not None:
                self._qos.restore_unacked_once()
            if self.connection is not None:
                self.connection.close_channel(self)
        self.exchange_types = {}


def _milliseconds(value: Any) -> timedelta | None:
    return timedelta(milliseconds=int(value)) if value is not None else None


def not_found(kind: str, name: str, method: str) -> ChannelError:
    """Return the error of a queue or exchange that does not exist."""
    return ChannelError(f"NOT_FOUND - no {kind} {name!r}", (50, 10), f"Channel.{method}", "404")
