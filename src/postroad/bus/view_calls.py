"""Calls that read the views of schema mbus."""

from __future__ import annotations

from datetime import datetime

from postroad.bus import rows
from postroad.bus.call import Call, named
from postroad.bus.status import (
    Consumer,
    ConsumerStatus,
    DeadMessage,
    Measured,
    Queue,
    Replay,
    StoredMessage,
)


def _view(
    fact: type, view: str, order: str, **wanted: str | None
) -> tuple[str, tuple[object, ...]]:
    chosen = {name: value for name, value in wanted.items() if value is not None}
    condition = " and ".join(f"{name} = %s" for name in chosen) or "true"
    text = rows.select(fact, f"mbus.{view} where {condition} order by {order}")
    return text, tuple(chosen.values())


def queues() -> Call[list[Queue]]:
    """List all queues. Read-only."""
    return Call(*_view(Queue, "queues", "queue"), rows.facts(Queue))


def consumers(queue: str | None = None) -> Call[list[Consumer]]:
    """List the consumers of one queue or of all. Read-only."""
    return Call(*_view(Consumer, "consumers", "queue, consumer", queue=queue), rows.facts(Consumer))


def status(queue: str | None = None) -> Call[list[ConsumerStatus]]:
    """Return the status of the consumers of one queue or of all. Read-only, no scans."""
    text, values = _view(ConsumerStatus, "status", "queue, consumer", queue=queue)
    return Call(text, values, rows.facts(ConsumerStatus))


def measures(queue: str | None = None) -> Call[list[Measured]]:
    """Return the histograms that workers have measured since the consumers exist. Read-only."""
    total = "(select * from mbus.measures where since = '-infinity') m"
    text, values = _view(Measured, "measures", "queue, consumer, kind", queue=queue)
    return Call(text.replace("mbus.measures", total), values, rows.facts(Measured))


def dead(
    queue: str | None = None, consumer: str | None = None, limit: int = 100
) -> Call[list[DeadMessage]]:
    """List dead messages, the latest first. Read-only."""
    order = "died_at desc, iid"
    text, values = _view(DeadMessage, "dead", order, queue=queue, consumer=consumer)
    return Call(text + " limit %s", (*values, limit), rows.messages_as_facts(DeadMessage))


def history(
    queue: str,
    since: datetime | None = None,
    until: datetime | None = None,
    selector: str | None = None,
    limit: int = 1_000,
    after: int = 0,
) -> Call[list[StoredMessage]]:
    """List stored messages, consumed or not, that were posted in a time, in order of posting.

    Consumed messages are stored if the queue retains them, see `alter_queue`. `after` is the id of
    the last message of the previous page. Read-only. Raises QueueNotFound, InvalidSelector.
    """
    given = {
        "qname": queue,
        "since": since or "-infinity",
        "until": until or "infinity",
        "selector": selector,
        "amt": limit,
        "place": after,
    }
    text = rows.select(StoredMessage, named("history", *given))
    return Call(text, tuple(given.values()), rows.messages_as_facts(StoredMessage), queue)


def replays(queue: str | None = None) -> Call[list[Replay]]:
    """List the replays of one queue or of all, the latest first. Read-only."""
    return Call(*_view(Replay, "replays", "id desc", queue=queue), rows.facts(Replay))
