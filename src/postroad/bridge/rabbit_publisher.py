"""`RabbitPublisher`: messages to RabbitMQ, each confirmed by the broker before it counts as sent.

A message is persistent and mandatory. One that no queue would get is reported as `Unroutable`, one
that AMQP cannot carry or the broker is configured to refuse as `Unfit`; neither blocks the others.
A call that failed half-way may have reached the broker: publish again under the same `message_id`,
and a receiver that remembers ids drops the second one. That is at least once.

```
closed ──first publish──▶ connected ──connection lost──▶ closed (the next publish reconnects)
```
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Self, cast

import aio_pika
import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import DeliveryError

from postroad.bridge.errors import BridgeError, BrokerRefused, BrokerUnavailable, Unfit, Unroutable
from postroad.bridge.rabbit import broker_failures, close_broker, connect_broker
from postroad.bridge.rabbit_mapping import Departing, unfit
from postroad.bus.reconnect import Backoff
from postroad.errors import first_line

CONFIRM_TIMEOUT_DEFAULT = timedelta(seconds=30)
CHANNELS_DEFAULT = 1
# Messages that may be published before the first of them is confirmed.
WINDOW_DEFAULT = 1_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message with its routing key and exchange."""

    message: aio_pika.Message | Departing
    routing_key: str
    exchange: str = ""


class RabbitPublisher:
    """Publishes with confirms over a small pool of channels; an async context manager."""

    def __init__(
        self,
        url: str,
        *,
        channels: int = CHANNELS_DEFAULT,
        window: int = WINDOW_DEFAULT,
        confirm_timeout: timedelta = CONFIRM_TIMEOUT_DEFAULT,
        name: str = "postroad publisher",
    ) -> None:
        self._url = url
        self._name = name
        self._slots = asyncio.Semaphore(channels)
        self._window = window
        self._confirm_seconds = confirm_timeout.total_seconds()
        self._connection: AbstractConnection | None = None
        self._connecting = asyncio.Lock()
        self._idle: list[AbstractChannel] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; a second call does nothing."""
        connection, self._connection = self._connection, None
        self._idle = []
        if connection is not None:
            await close_broker(connection)

    async def publish(
        self,
        message: aio_pika.Message,
        routing_key: str,
        exchange: str = "",
        *,
        patience: timedelta = timedelta(0),
    ) -> None:
        """Publish one message and wait for the broker's confirm.

        While the broker is away, retries for as long as `patience`. Raises Unroutable, Unfit,
        BrokerRefused, BrokerUnavailable.
        """
        deadline = asyncio.get_running_loop().time() + patience.total_seconds()
        backoff = Backoff()
        while True:
            try:
                (failure,) = await self.publish_many([Outgoing(message, routing_key, exchange)])
            except BrokerUnavailable:
                pause = backoff.next_seconds()
                if asyncio.get_running_loop().time() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
            else:
                if failure is not None:
                    raise failure
                return

    async def publish_many(self, outgoing: Sequence[Outgoing]) -> list[BridgeError | None]:
        """Publish in order and wait for all confirms; return for each its error or None.

        Raises BrokerUnavailable when some of them may not have reached the broker.
        """
        answers: list[BridgeError | None] = []
        for start in range(0, len(outgoing), self._window):
            answers += await self._publish_part(outgoing[start : start + self._window])
        return answers

    async def _publish_part(self, part: Sequence[Outgoing]) -> list[BridgeError | None]:
        try:
            async with self.channel() as channel:
                with broker_failures():
                    driver = cast("aiormq.Channel", await channel.get_underlay_channel())
                    async with asyncio.timeout(self._confirm_seconds):
                        return await asyncio.gather(*(_publish(driver, each) for each in part))
        except BrokerRefused as refusal:
            if not isinstance(refusal.__cause__, aiormq.exceptions.ChannelPreconditionFailed):
                raise
            # One of them is too long for this broker, which closed the channel without naming it.
            # The others are published again in parts, in order and under the same ids.
            if len(part) == 1:
                return [Unfit(str(refusal), hint="see the broker's max_message_size")]
            half = len(part) // 2
            first = await self._publish_part(part[:half])
            return first + await self._publish_part(part[half:])

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[AbstractChannel]:
        """Use a channel; after a failure its connection is closed. Raises BrokerUnavailable."""
        async with self._slots:
            connection = await self._connect()
            try:
                channel = self._idle.pop() if self._idle else None
                if channel is None or channel.is_closed:
                    with broker_failures():
                        channel = await connection.channel(on_return_raises=True)
                yield channel
            except BaseException:
                # Messages on that channel may or may not have reached the broker.
                await self.close()
                raise
            if self._connection is connection:
                self._idle.append(channel)

    async def _connect(self) -> AbstractConnection:
        async with self._connecting:
            if self._connection is None or self._connection.is_closed:
                await self.close()
                self._connection = await connect_broker(self._url, self._name)
            return self._connection


async def _publish(channel: aiormq.Channel, outgoing: Outgoing) -> BridgeError | None:
    try:
        properties = outgoing.message.properties
        if (problem := unfit(properties, outgoing.routing_key)) is not None:
            return Unfit(problem, hint="shorten it; then send it again with: postroad bus redrive")
        await channel.basic_publish(
            outgoing.message.body,
            exchange=outgoing.exchange,
            routing_key=outgoing.routing_key,
            properties=properties,
            mandatory=True,
            wait=False,
        )
    except DeliveryError as failure:
        if isinstance(failure.frame, aiormq.spec.Basic.Nack):
            return BrokerRefused("RabbitMQ did not take the message (nack)")
        return Unroutable(
            f"no queue for routing key {outgoing.routing_key!r} of exchange {outgoing.exchange!r}",
            hint="bind a queue, then send it again with: postroad bus redrive",
        )
    except (TypeError, ValueError, struct.error) as wrong:
        # The driver could not encode the message; nothing was sent.
        return Unfit(f"AMQP cannot carry the message: {first_line(wrong)}")
    return None
