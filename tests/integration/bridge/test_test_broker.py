"""The broker that tests run on: it is real, speaks TLS, and keeps durable messages when killed."""

from __future__ import annotations

import aio_pika
import pytest

from tests.fixtures.rabbitmq import RabbitServer


@pytest.mark.slow
@pytest.mark.chaos
async def test_a_killed_broker_comes_back_with_what_it_confirmed(rabbitmq: RabbitServer) -> None:
    name = rabbitmq.unique("kept")
    connection = await aio_pika.connect(rabbitmq.url)
    channel = await connection.channel(publisher_confirms=True)
    await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
    rabbitmq.settle(name)
    message = aio_pika.Message(b"hello", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, routing_key=name)
    rabbitmq.kill()
    await connection.close()
    rabbitmq.start()
    async with await aio_pika.connect(rabbitmq.tls_url) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue(name)
        found = await queue.get(timeout=20, fail=True)
        assert found.body == b"hello"
        await found.ack()
