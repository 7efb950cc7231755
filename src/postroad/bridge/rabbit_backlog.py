"""What kind a queue of RabbitMQ is, and how much it still has for us."""

from __future__ import annotations

import asyncio

from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aiormq.exceptions import ChannelPreconditionFailed

from postroad.bridge.rabbit_publisher import broker_failures

__all__ = ["end_of_stream", "is_stream", "ready_messages"]

# A stream that has messages gives its last ones at once.
STREAM_ANSWER_SECONDS = 1.0


async def ready_messages(channel: AbstractChannel, queue: str) -> int:
    """Tell how many messages of a queue nobody has yet."""
    with broker_failures():
        found = await channel.declare_queue(queue, passive=True)
    return int(found.declaration_result.message_count or 0)


async def is_stream(connection: AbstractConnection, queue: str) -> bool:
    """Tell whether a queue that somebody else has made is a stream.

    AMQP tells nobody the kind of a queue; but only of a stream an offset may be asked for. "next"
    gives nothing of what is there.
    """

    async def pass_over(message: AbstractIncomingMessage) -> None:
        del message

    with broker_failures():
        # A channel of its own: a refusal closes it.
        async with connection.channel(publisher_confirms=False) as channel:
            await channel.set_qos(prefetch_count=1)
            asked = await channel.get_queue(queue, ensure=False)
            try:
                await asked.consume(pass_over, arguments={"x-stream-offset": "next"})
            except ChannelPreconditionFailed:
                return False
    return True


async def end_of_stream(connection: AbstractConnection, stream: str) -> int | None:
    """Tell the offset at which the last chunk of a stream begins; None while it is empty.

    A stream counts what it keeps, not what a reader has still to read; but whoever asks for its
    last chunk is told the offset. One message is fetched for that.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[int | None] = loop.create_future()

    async def look(message: AbstractIncomingMessage) -> None:
        offset = message.headers.get("x-stream-offset")
        if not answer.done():
            answer.set_result(offset if isinstance(offset, int) else None)

    with broker_failures():
        # A channel of its own: it is closed with its consumer.
        async with connection.channel(publisher_confirms=False) as channel:
            await channel.set_qos(prefetch_count=1)
            queue = await channel.get_queue(stream, ensure=False)
            await queue.consume(look, arguments={"x-stream-offset": "last"})
            await asyncio.wait({answer}, timeout=STREAM_ANSWER_SECONDS)
    return answer.result() if answer.done() else None
