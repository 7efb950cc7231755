"""What an operator may do with messages and sagas, besides looking (see `browse` and `status`).

Each of these is one transaction, or repeats one until nothing is left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Literal, TypeAlias

from postroad.bus import rows
from postroad.bus.async_client import AsyncBus
from postroad.bus.browse import Selection, State, matching
from postroad.bus.call import Call
from postroad.bus.message import Message
from postroad.bus.saga import AsyncSagas

Verb: TypeAlias = Literal["redrive", "move", "purge"]
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
    given = (queue, destination, consumer, state, iid, amount)
    moved: int = await bus._run(
        Call(text, given, rows.value, queue, consumer, wakes=(destination,))
    )
    return moved


async def on_matching(
    bus: AsyncBus, verb: Verb, selection: Selection, destination: str | None = None
) -> AsyncIterator[int]:
    """Redrive, move or purge all messages of a selection in batches; yield how many so far.

    Each batch is one transaction.
    Raises QueueNotFound, ConsumerNotFound, WrongPayload, InvalidArgument.
    """
    given, total = selection, 0
    if verb == "purge" and given.state == "ready" and given.search is None:
        # The queue's own consume function removes whole batches without looking up each iid.
        text = "select mbus.purge(qname => %s, cname => %s, amt => %s)"
        named = (given.queue, given.consumer, BATCH_DEFAULT)
        removed = BATCH_DEFAULT
        while removed == BATCH_DEFAULT:
            removed = await bus._run(Call(text, named, rows.value, given.queue, given.consumer))
            total += removed
            yield total
        return
    arguments = {"qname": given.queue, "cname": given.consumer}
    if verb != "redrive":
        arguments["state"] = given.state
    if destination is not None:
        arguments["destination"] = destination
    # Verbs and names of parameters are those above, never the caller's.
    call = f"mbus.{verb}({', '.join(f'{name} => %s' for name in arguments)}, iid => m.iid)"
    text = f"select coalesce(sum({call}), 0)::bigint from unnest(%s::text[]) m(iid)"  # noqa: S608
    async for iids in matching(bus, given, BATCH_DEFAULT):
        if iids:
            listed = (*arguments.values(), iids)
            woken = (destination or given.queue,)
            total += await bus._run(
                Call(text, listed, rows.value, given.queue, given.consumer, wakes=woken)
            )
        yield total


async def cancel_saga(bus: AsyncBus, saga_id: int, reason: str | None = None) -> bool:
    """Roll a saga back. Raises SagaNotFound, SagaPastPivot, SagaFinished."""
    return await AsyncSagas(bus).cancel(saga_id, reason)


async def retry_saga(bus: AsyncBus, saga_id: int) -> int:
    """Give the dead messages of a stuck saga back; return how many. Raises SagaNotFound."""
    return await AsyncSagas(bus).retry(saga_id)
