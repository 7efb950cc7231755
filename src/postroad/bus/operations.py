"""What an operator may do with messages and sagas, besides looking (see `browse` and `status`).

Each of these is one transaction, or repeats one until nothing is left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from postroad.bus import rows
from postroad.bus.async_client import AsyncBus
from postroad.bus.browse import State
from postroad.bus.calls import Call
from postroad.bus.message import Message
from postroad.bus.saga import AsyncSagas

__all__ = ["cancel_saga", "move", "post", "purge", "redrive", "retry_saga", "take"]

BATCH_DEFAULT = 1_000


async def post(
    bus: AsyncBus,
    queue: str,
    data: object,
    properties: Mapping[str, str | None] | None = None,
    headers: Mapping[str, str | None] | None = None,
) -> str:
    """Post one message and return its iid. Raises QueueNotFound, WrongPayload."""
    return await bus.post(queue, data, headers, properties)


async def take(bus: AsyncBus, iid: str, consumer: str | None = None) -> Message | None:
    """Remove one message, wherever it waits, and return it; None when it is gone."""
    return await bus.take(iid, consumer)


async def redrive(
    bus: AsyncBus, queue: str, consumer: str | None = None, iid: str | None = None
) -> int:
    """Bring dead messages back to be delivered again; return how many."""
    return await bus.redrive(queue, consumer, iid)


async def move(
    bus: AsyncBus,
    queue: str,
    destination: str,
    consumer: str = "default",
    state: State = "ready",
    iid: str | None = None,
    amount: int = BATCH_DEFAULT,
) -> int:
    """Move messages to another queue with the same payload; return how many.

    Raises QueueNotFound, ConsumerNotFound, WrongPayload, InvalidArgument.
    """
    text = (
        "select mbus.move(qname => %s, destination => %s, cname => %s, state => %s, iid => %s,"
        " amt => %s)"
    )
    moved: int = await bus._run(
        Call(text, (queue, destination, consumer, state, iid, amount), rows.value, queue, consumer)
    )
    if moved:
        bus._runner.announce(destination)
    return moved


async def purge(
    bus: AsyncBus, queue: str, consumer: str = "default", state: State = "ready"
) -> AsyncIterator[int]:
    """Remove every message of a consumer in a state, batch by batch; yield how many so far."""
    text = "select mbus.purge(qname => %s, cname => %s, state => %s, amt => %s)"
    total = 0
    while True:
        removed: int = await bus._run(
            Call(text, (queue, consumer, state, BATCH_DEFAULT), rows.value, queue, consumer)
        )
        total += removed
        yield total
        if removed < BATCH_DEFAULT:
            return


async def cancel_saga(bus: AsyncBus, saga_id: int, reason: str | None = None) -> bool:
    """Roll a saga back. Raises SagaNotFound, SagaPastPivot, SagaFinished."""
    return await AsyncSagas(bus).cancel(saga_id, reason)


async def retry_saga(bus: AsyncBus, saga_id: int) -> int:
    """Give the dead messages of a stuck saga back; return how many. Raises SagaNotFound."""
    return await AsyncSagas(bus).retry(saga_id)
