"""From a queue of the bus to RabbitMQ: at least once, with the iid as `message_id`.

The source's transaction takes a batch and stays open while the broker confirms each message; then
it commits. A crash between the confirms and the commit sends the batch again, under the same
`message_id`s. A receiver that remembers ids, such as `RabbitIn` into PostgreSQL, makes it exactly
once in effect.

A message that no queue would get (`mandatory`), that AMQP cannot carry (a routing key above 255
bytes) or that the broker is configured to refuse goes to the dead message queue of the bridge's
consumer.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from postroad.bridge.calls import Batch, Delivery
from postroad.bridge.errors import BrokerRefused
from postroad.bridge.pump import Pump
from postroad.bridge.rabbit import RabbitRoute, declare
from postroad.bridge.rabbit_mapping import depart, routing_key
from postroad.bridge.rabbit_publisher import Outgoing, RabbitPublisher
from postroad.bridge.service import PumpSettings
from postroad.bus import calls as bus_calls
from postroad.bus.hstore import parse
from postroad.bus.payload import Payload
from postroad.bus.session import run_async
from postroad.postgres.calls import Connection

MAX_RABBIT_BATCH = 1_000


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
        settings = replace(settings, batch_messages=min(settings.batch_messages, MAX_RABBIT_BATCH))
        super().__init__(name, queue, source, selector=selector, settings=settings)
        self._url = url
        self.route = route or RabbitRoute(queue=queue)
        self._consumer = consumer

    async def install(self) -> None:
        """Create the outlet at the source; the broker's side is declared at each connect."""
        target = f"rabbitmq: {self.route.exchange or '-'}/{self.route.key}"
        await self.open_outlet(target, self._consumer)

    async def reach(self, stack: AsyncExitStack, source: Connection) -> None:
        """Connect to the broker and declare what the route needs."""
        payload = await run_async(source, bus_calls.describe(self.queue))
        self._payload = cast("Payload", payload or "hstore")
        publisher = RabbitPublisher(self._url, window=self.settings.batch_messages, name=self.name)
        self._publisher = await stack.enter_async_context(publisher)
        async with publisher.channel() as channel:
            await declare(channel, self.route)

    async def deliver(self, batch: Batch) -> Delivery:
        """Publish the batch and wait for the confirms."""
        outgoing = self._outgoing(batch)
        refused: dict[int, str] = {}
        for place, answer in enumerate(await self._publisher.publish_many(outgoing), start=1):
            if isinstance(answer, BrokerRefused):
                # The broker is full or has another problem; the message stays in the queue.
                raise answer
            if answer is not None:
                refused[place] = str(answer)
        return Delivery(batch.messages - len(refused), 0, tuple(refused), tuple(refused.values()))

    def _outgoing(self, batch: Batch) -> list[Outgoing]:
        now = datetime.now(UTC)
        key = template = self.route.key
        outgoing = []
        for place in range(batch.messages):
            if "{" in template:
                headers, properties = batch.headers[place], batch.properties[place] or ""
                key = routing_key(template, self.queue, parse(headers), parse(properties))
            message = depart(batch, place, self._payload, now)
            outgoing.append(Outgoing(message, key, self.route.exchange))
        return outgoing
