"""`RabbitPublisher`: messages to RabbitMQ, each confirmed by the broker before it counts as sent.

A message is persistent and mandatory: where no queue would get it, `Unroutable` says so; one that
AMQP cannot carry or the broker is not set to take is `Unfit`, and holds up no other. A call
that failed half-way may have reached the broker; publish again under the same `message_id`, and a
receiver that remembers ids drops the second one. That is at least once on the wire.

```
closed ──first publish──▶ connected ──connection lost──▶ closed (the next publish connects anew)
```
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import aio_pika
import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from aio_pika.exceptions import AMQPError, DeliveryError

from postroad.bridge.errors import (
    BridgeError,
    BrokerRefused,
    BrokerUnavailable,
    Unfit,
    Unroutable,
)
from postroad.bridge.rabbit_limits import unfit
from postroad.bus.reconnect import Backoff

__all__ = ["Outgoing", "RabbitPublisher", "broker_failures", "connect_broker"]

CONNECT_TIMEOUT_SECONDS = 10.0
CONFIRM_TIMEOUT_DEFAULT = timedelta(seconds=30)
CHANNELS_DEFAULT = 1
# Before the first publishes are confirmed so many others are on their way.
WINDOW_DEFAULT = 1_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message and where it goes."""

    message: aio_pika.Message
    routing_key: str
    exchange: str = ""


async def connect_broker(url: str, name: str = "postroad") -> AbstractConnection:
    """Connect to a broker; `amqps://…?cafile=…` for TLS. Raises BrokerUnavailable."""
    with broker_failures():
        return await aio_pika.connect(
            url, timeout=CONNECT_TIMEOUT_SECONDS, client_properties={"connection_name": name}
        )


@contextlib.contextmanager
def broker_failures() -> Any:
    """Turn the driver's errors into the room's."""
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
            f"RabbitMQ refuses: {_reason(failure)}",
            hint="check the user's rights, and that queues and exchanges are of the kind asked for",
        ) from failure
    except (AMQPError, OSError, TimeoutError, RuntimeError, asyncio.CancelledError) as failure:
        # When a connection breaks the driver cancels those who wait on its channels, and answers
        # those who come later with a RuntimeError.
        task = asyncio.current_task()
        if isinstance(failure, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        raise BrokerUnavailable(
            f"RabbitMQ cannot be reached: {_reason(failure)}",
            hint="check that it runs and that the URL names it",
        ) from failure


def _reason(failure: BaseException) -> str:
    return (str(failure).strip() or type(failure).__name__).splitlines()[0]


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
        self._size = channels
        self._window = window
        self._confirm_seconds = confirm_timeout.total_seconds()
        self._connection: AbstractConnection | None = None
        self._connecting = asyncio.Lock()
        self._free: asyncio.Queue[AbstractChannel] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; a second call does nothing."""
        connection, self._connection = self._connection, None
        self._free = asyncio.Queue()
        if connection is not None:
            with contextlib.suppress(AMQPError, OSError, TimeoutError, RuntimeError):
                await asyncio.wait_for(connection.close(), CONNECT_TIMEOUT_SECONDS)

    async def publish(
        self,
        message: aio_pika.Message,
        routing_key: str,
        exchange: str = "",
        *,
        patience: timedelta = timedelta(0),
    ) -> None:
        """Publish one message and wait for the broker's confirm.

        While the broker is away, tries again for as long as `patience`. Raises Unroutable,
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
        """Publish in order and wait for all confirms; tell for each what was wrong with it.

        Raises BrokerUnavailable when some of them may not have reached the broker.
        """
        answers: list[BridgeError | None] = []
        for start in range(0, len(outgoing), self._window):
            answers += await self._publish_part(outgoing[start : start + self._window])
        return answers

    async def _publish_part(self, part: Sequence[Outgoing]) -> list[BridgeError | None]:
        try:
            async with self._channel() as channel:
                with broker_failures():
                    # Without asking the broker whether they exist: publishing tells.
                    exchanges = {
                        name: await channel.get_exchange(name, ensure=False)
                        for name in {each.exchange for each in part}
                    }
                    async with asyncio.timeout(self._confirm_seconds):
                        return await asyncio.gather(
                            *(_publish(exchanges[each.exchange], each) for each in part)
                        )
        except BrokerRefused as refusal:
            if not isinstance(refusal.__cause__, aiormq.exceptions.ChannelPreconditionFailed):
                raise
            # One of them is too long for this broker, which shut the channel and does not say
            # which. The others go again in parts, in order and under the same ids.
            if len(part) == 1:
                return [Unfit(str(refusal), hint="see the broker's max_message_size")]
            half = len(part) // 2
            first = await self._publish_part(part[:half])
            return first + await self._publish_part(part[half:])

    @contextlib.asynccontextmanager
    async def _channel(self) -> AsyncIterator[AbstractChannel]:
        await self._connect()
        free = self._free
        channel = await free.get()
        try:
            if channel.is_closed:
                with broker_failures():
                    channel = await self._open_channel()
            yield channel
        except BaseException:
            # What is on its way on that channel is not known any more: begin with a new connection.
            await self.close()
            raise
        free.put_nowait(channel)

    async def _connect(self) -> None:
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed:
                return
            await self.close()
            self._connection = await connect_broker(self._url, self._name)
            with broker_failures():
                for _ in range(self._size):
                    self._free.put_nowait(await self._open_channel())

    async def _open_channel(self) -> AbstractChannel:
        if self._connection is None:
            raise BrokerUnavailable("the connection to RabbitMQ was closed")
        return await self._connection.channel(publisher_confirms=True, on_return_raises=True)


async def _publish(exchange: AbstractExchange, outgoing: Outgoing) -> BridgeError | None:
    if (problem := unfit(outgoing.message, outgoing.routing_key)) is not None:
        return Unfit(problem, hint="shorten it; then send it again with: postroad bus redrive")
    try:
        await exchange.publish(outgoing.message, routing_key=outgoing.routing_key, mandatory=True)
    except DeliveryError as failure:
        if isinstance(failure.frame, aiormq.spec.Basic.Nack):
            return BrokerRefused("RabbitMQ did not take the message (nack)")
        return Unroutable(
            f"no queue for routing key {outgoing.routing_key!r} of exchange {outgoing.exchange!r}",
            hint="bind a queue, then send it again with: postroad bus redrive",
        )
    except (TypeError, ValueError, struct.error) as wrong:
        # The driver could not write it down; nothing of it has left.
        return Unfit(f"AMQP cannot carry the message: {_reason(wrong)}")
    return None
