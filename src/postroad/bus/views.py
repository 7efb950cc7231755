"""The queries of the views of schema mbus, as values like the calls."""

from __future__ import annotations

from postroad.bus import rows
from postroad.bus.calls import Call
from postroad.bus.status import Consumer, ConsumerStatus, DeadMessage, Queue


def _view(
    fact: type, view: str, order: str, queue: str | None, consumer: str | None
) -> tuple[str, tuple[object, ...]]:
    text = rows.select(fact, f"mbus.{view} where (%s::text is null or queue = %s)")
    values: tuple[object, ...] = (queue, queue)
    if consumer is not None:
        text, values = text + " and consumer = %s", (*values, consumer)
    return f"{text} order by {order}", values


def queues() -> Call[list[Queue]]:
    """Build the query of view mbus.queues."""
    return Call(*_view(Queue, "queues", "queue", None, None), rows.facts(Queue))


def consumers(queue: str | None) -> Call[list[Consumer]]:
    """Build the query of view mbus.consumers."""
    return Call(*_view(Consumer, "consumers", "queue, consumer", queue, None), rows.facts(Consumer))


def status(queue: str | None) -> Call[list[ConsumerStatus]]:
    """Build the query of view mbus.status."""
    return Call(
        *_view(ConsumerStatus, "status", "queue, consumer", queue, None), rows.facts(ConsumerStatus)
    )


def dead(queue: str | None, consumer: str | None, limit: int) -> Call[list[DeadMessage]]:
    """Build the query of view mbus.dead, latest first."""
    text, values = _view(DeadMessage, "dead", "died_at desc, iid", queue, consumer)
    return Call(text + " limit %s", (*values, limit), rows.dead_messages)
