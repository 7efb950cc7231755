"""From a queue of the bus to RabbitMQ: at least once on the wire, with the iid to know it by.

The source's transaction takes a batch and stays open while the broker confirms each message; then
it commits. A crash between the confirms and the commit sends the batch again, under the same
`message_id`s. No broker without a memory of ids can do better; a receiver that has one, such as
`RabbitIn` into PostgreSQL, makes it exactly once in effect.

A message that no queue would get (`mandatory`), that AMQP cannot carry (a routing key above 255
bytes) or that the broker is not set to take goes to the dmq of the bridge's consumer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from psycopg import AsyncConnection

from postroad.bridge import calls
from postroad.bridge.calls import Batch, Delivery, ParsedBatch
from postroad.bridge.ends import open_outlet
from postroad.bridge.errors import BrokerRefused
from postroad.bridge.pump import Pump, PumpSettings
from postroad.bridge.rabbit_mapping import depart, routing_key
from postroad.bridge.rabbit_publisher import Outgoing, RabbitPublisher, connect_broker
from postroad.bridge.rabbit_topology import RabbitRoute, declare
from postroad.bus import calls as bus_calls
from postroad.bus.hstore import parse
from postroad.bus.payload import Payload
from postroad.bus.session import run_async

__all__ = ["RabbitOut"]

# The source's transaction is open while the broker confirms, which it does one by one.
RABBIT_BATCH_MOST = 1_000


class RabbitOut(Pump):
    """Carries messages to RabbitMQ; `await install()` once, then run it.

    It takes the messages of `consumer`, which must exist; without one, `install` creates its own.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str,
        url: str,
        queue: str,
        route: RabbitRoute | None = None,
        selector: str | None = None,
        consumer: str | None = None,
        settings: PumpSettings | None = None,
    ) -> None:
        settings = settings or PumpSettings()
        most = min(settings.batch_messages, RABBIT_BATCH_MOST)
        super().__init__(name, queue, source, replace(settings, batch_messages=most))
        self._url = url
        self.route = route or RabbitRoute(queue=queue)
        self._selector = selector
        self._consumer = consumer
        self._publisher: RabbitPublisher | None = None
        self._payload: Payload = "hstore"

    async def install(self) -> None:
        """Open the outlet at the source; the broker's side is declared at each connect."""
        await open_outlet(
            self._source,
            self.bridge,
            self.queue,
            f"rabbitmq: {self.route.exchange or '-'}/{self.route.key}",
            selector=self._selector,
            consumer=self._consumer,
        )

    @asynccontextmanager
    async def reach(self, source: AsyncConnection[Any]) -> AsyncIterator[None]:
        """Connect to the broker and declare what the route needs."""
        payload = await run_async(source, bus_calls.describe(self.queue))
        self._payload = cast("Payload", payload or "hstore")
        connection = await connect_broker(self._url, self.name)
        try:
            channel = await connection.channel()
            await declare(channel, self.route)
        finally:
            await connection.close()
        async with RabbitPublisher(
            self._url, window=self.settings.batch_messages, name=self.name
        ) as publisher:
            self._publisher = publisher
            yield

    async def take(self, hand: AsyncConnection[Any], amount: int) -> Batch:
        """Take a batch to be looked at."""
        return await calls.take_parsed(hand, self.bridge, amount)

    async def deliver(self, batch: Batch) -> Delivery:
        """Publish the batch and wait for the confirms."""
        assert isinstance(batch, ParsedBatch)  # noqa: S101 - that is what take() gives
        assert self._publisher is not None  # noqa: S101 - hands live inside reach()
        answers = await self._publisher.publish_many(self._outgoing(batch))
        refused: dict[int, str] = {}
        for place, answer in enumerate(answers, start=1):
            if isinstance(answer, BrokerRefused):
                # The broker is full or in trouble; the message is not to blame.
                raise answer
            if answer is not None:
                refused[place] = str(answer)
        self.signals.emit("delivered", batch.number)
        return Delivery(batch.messages - len(refused), 0, tuple(refused), tuple(refused.values()))

    def _outgoing(self, batch: ParsedBatch) -> list[Outgoing]:
        now = datetime.now(UTC)
        template = self.route.key
        is_fixed = "{" not in template
        outgoing = []
        for place in range(batch.messages):
            key = template
            if not is_fixed:
                headers = parse(batch.headers[place])
                key = routing_key(
                    template, self.queue, headers, parse(batch.properties[place] or "")
                )
            message = depart(batch, place, self._payload, now)
            outgoing.append(Outgoing(message, key, self.route.exchange))
        return outgoing
