"""Calls that read the views of schema mbus."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from postroad.bus.call import Call, listed, named
from postroad.bus.parameters import BEGINNING, END
from postroad.bus.status import (
    Consumer,
    ConsumerStatus,
    DeadMessage,
    Measured,
    Queue,
    Replay,
    StoredMessage,
)

T = TypeVar("T")


def _view(
    fact: type[T], view: str, order: str, *more: object, **wanted: str | None
) -> Call[list[T]]:
    chosen = {name: value for name, value in wanted.items() if value is not None}
    condition = " and ".join(f"{name} = %s" for name in chosen) or "true"
    return listed(fact, f"{view} where {condition} order by {order}", *chosen.values(), *more)


def queues() -> Call[list[Queue]]:
    """List all queues. Read-only."""
    return _view(Queue, "mbus.queues", "queue")


def consumers(queue: str | None = None) -> Call[list[Consumer]]:
    """List the consumers of one queue or of all. Read-only."""
    return _view(Consumer, "mbus.consumers", "queue, consumer", queue=queue)


def status(queue: str | None = None) -> Call[list[ConsumerStatus]]:
    """Return the status of the consumers of one queue or of all. Read-only, no scans."""
    return _view(ConsumerStatus, "mbus.status", "queue, consumer", queue=queue)


def measures(queue: str | None = None) -> Call[list[Measured]]:
    """Return the histograms that workers have measured since the consumers exist. Read-only."""
    total = "(select * from mbus.measures where since = '-infinity') m"
    return _view(Measured, total, "queue, consumer, kind", queue=queue)


def dead(
    queue: str | None = None, consumer: str | None = None, limit: int = 100
) -> Call[list[DeadMessage]]:
    """List dead messages, the latest first. Read-only."""
    order = "died_at desc, iid limit %s"
    return _view(DeadMessage, "mbus.dead", order, limit, queue=queue, consumer=consumer)


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
    past = {"qname": queue, "since": since or BEGINNING, "until": until or END}
    given = {**past, "selector": selector, "amt": limit, "place": after}
    return listed(StoredMessage, named("history", *given), *given.values(), queue=queue)


def replays(queue: str | None = None) -> Call[list[Replay]]:
    """List the replays of one queue or of all, the latest first. Read-only."""
    return _view(Replay, "mbus.replays", "id desc", queue=queue)
