"""A bridge to RabbitMQ, beside a bare aio-pika publisher with confirms."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aio_pika

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least
from benchmarks.rounds import interleave, median, ratio, thousands
from benchmarks.shapes import PAYLOAD
from postroad.bridge import RabbitIn, RabbitOut, RabbitRoute
from postroad.cli.components import BRIDGE
from postroad.postgres import install
from tests.fixtures.rabbitmq import RabbitServer

ROUNDS = 3
MESSAGES = 10_000
BATCH = 1000


def run(lab: Lab) -> Findings:
    """Alternate between the bridge and the bare publisher; then bring everything back."""
    count = lab.scaled(MESSAGES, 2_000)
    install(lab.connection, BRIDGE)
    with _broker() as broker:
        rates = interleave(
            lab,
            ROUNDS,
            {
                "bridge out": lambda: asyncio.run(_out(lab, broker, count)),
                "bare publisher": lambda: asyncio.run(_bare(broker, count)),
                "bridge in": lambda: asyncio.run(_in(lab, broker, count)),
            },
        )
    return Findings(
        [
            Figure(
                "bridge to RabbitMQ, quorum queue, confirms",
                thousands(median(rates, "bridge out"), " msg/s"),
                f"bare aio-pika publisher with confirms"
                f" {thousands(median(rates, 'bare publisher'), ' msg/s')}",
                judged=ratio(rates, "bridge out", "bare publisher"),
                unit="x",
                bar=at_least(0.9),
            ),
            Figure(
                "bridge from RabbitMQ, deduplicated, acknowledged after commit",
                thousands(median(rates, "bridge in"), " msg/s"),
            ),
        ],
        {"rates": rates},
    )


@contextmanager
def _broker() -> Iterator[RabbitServer]:
    folder = Path(tempfile.mkdtemp(prefix="postroad-bench-"))
    broker = RabbitServer(folder / "rabbitmq")
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _finish(service: RabbitOut | RabbitIn, signal: str, count: int) -> float:
    service.signals.listen(signal)
    async with service:
        # Connected, as the bare publisher is when its clock starts.
        began = time.perf_counter()
        while service.delivered < count:
            await service.signals.wait(signal)
        return count / (time.perf_counter() - began)


async def _out(lab: Lab, broker: RabbitServer, count: int) -> float:
    queue = lab.new_queue("text")
    route = RabbitRoute(queue=broker.unique("bench"))
    bridge = RabbitOut(queue, source=lab.dsn, url=broker.url, queue=queue, route=route)
    await bridge.install()
    lab.execute(f"select mbus.drop_consumer('{queue}', 'default')")
    lab.execute(
        f"select mbus.postn_{queue}(array_fill('{PAYLOAD}'::text, array[{BATCH}]))"
        f" from generate_series(1, {count // BATCH})"
    )
    lab.checkpoint()
    rate = await _finish(bridge, "committed", count)
    lab.drop_queue(queue)
    return rate


async def _bare(broker: RabbitServer, count: int) -> float:
    """Publish as one would without Postroad: a thousand at once, each confirmed."""
    name = broker.unique("bench")
    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
        exchange = channel.default_exchange
        began = time.perf_counter()
        for start in range(0, count, BATCH):
            messages = (
                aio_pika.Message(
                    PAYLOAD.encode(),
                    message_id=f"bench.{number}",
                    delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                )
                for number in range(start, start + BATCH)
            )
            await asyncio.gather(
                *(exchange.publish(message, name, mandatory=True) for message in messages)
            )
        return count / (time.perf_counter() - began)


async def _in(lab: Lab, broker: RabbitServer, count: int) -> float:
    """Bring a thousand at once from a queue that was filled by the bare publisher's way."""
    queue = lab.new_queue("text")
    name = broker.unique("bench")
    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
        for start in range(0, count, BATCH):
            await asyncio.gather(
                *(
                    channel.default_exchange.publish(
                        aio_pika.Message(
                            PAYLOAD.encode(), message_id=f"{queue}.{number}@bench", delivery_mode=2
                        ),
                        name,
                    )
                    for number in range(start + 1, start + BATCH + 1)
                )
            )
    route = RabbitRoute(queue=name)
    bridge = RabbitIn(queue, url=broker.url, target=lab.dsn, queue=queue, route=route)
    await bridge.install()
    rate = await _finish(bridge, "acknowledged", count)
    lab.drop_queue(queue)
    return rate


SCENARIO = Scenario(
    "bridge_rabbitmq",
    "A bridge to and from RabbitMQ",
    "A real RabbitMQ on the same two cores, a quorum queue, persistent messages of 200 bytes, "
    "each confirmed. Out: 10,000 waiting messages until the last one is confirmed and committed. "
    "For comparison, in the same rounds, an aio-pika publisher with 1,000 open confirms. In: the "
    "same number from a queue into the bus, with the ledger, acknowledged after commit.",
    3 * ROUNDS,
    run,
)
