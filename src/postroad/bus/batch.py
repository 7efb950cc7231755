"""The transaction mode's statements and decisions, shared by both colours. Pure.

A batch is committed and the next one taken in one round trip, as one text of several statements. If
the commit fails the server skips the rest, and the batch is treated like one whose handler failed.

A handler can end the transaction with its own statement. The id of the transaction that took
the batch determines its outcome: after a rollback the messages are back in the queue; after a
commit all of them are consumed, and those that were not handled yet are given back.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from postroad.bus import rows
from postroad.bus.call import Call
from postroad.bus.decoding import FIRST_MOMENT
from postroad.bus.handlers import MAX_CONFLICTS, Handler, MessageBatch, is_conflict
from postroad.bus.message import Message
from postroad.bus.parameters import function
from postroad.bus.rows import select_batch

FIRST_BATCH_SIZE = 10
BATCH_SECONDS = 0.1
# Handlers below this duration are fast; one runner handles a batch of them for this long.
QUICK_HANDLER_SECONDS = 0.0001
QUICK_SECONDS = 0.01
# While a batch takes longer than this, further connections are opened, and kept for a while.
SLOW_SECONDS = 0.25
KEEP_SECONDS = 1.0
# Enough to keep a few cores of a server busy.
SHARED_CONNECTIONS = 4

# A promoted server may not have reached this id yet; pg_xact_status would raise an error.
_WAS_COMMITTED = (
    "select case when xid < pg_snapshot_xmax(pg_current_snapshot())"
    " then pg_xact_status(xid) = 'committed' else false end from (select %s::xid8) batch(xid)"
)
RESTORE_RECORD = "select set_config('mbus.taken', %s, true)"

# Set explicitly, because the database's default may be a higher level, which takes refuse.
_BEGIN = "begin isolation level read committed; "
_XID = (
    "; select pg_current_xact_id_if_assigned()::text as xid,"
    " current_setting('mbus.taken', true), mbus.now()"
)
_CHECK = (
    "select 1 / (pg_current_xact_id_if_assigned() is not distinct from '{0}'::xid8"
    " or pg_xact_status('{0}'::xid8) = 'committed')::int as is_checked; "
)


def was_committed(xid: str | None) -> Call[bool | None]:
    """Build the query that checks whether a transaction was committed; None without one."""
    return Call(_WAS_COMMITTED, (xid,), rows.value)


class BatchSize:
    """The number of messages taken together: many while handlers are fast, few while they are slow.

    Messages that are taken together are committed together, and other workers cannot take them
    until then. So the size is chosen such that a batch takes a tenth of a second.
    """

    def __init__(self, limit: int, first: int = FIRST_BATCH_SIZE, *, least: int = 1) -> None:
        self._limit = limit
        self._least = least
        self.amount = min(limit, first)

    def adjust(self, count: int, seconds: float, width: int = 1) -> None:
        """Adjust the size to the duration of the last batch; at most double it.

        `width` messages were handled in parallel, so a batch of that size takes no longer
        than a smaller one.
        """
        if count == 0:
            return
        rounds = math.ceil(count / width)
        fitting = self._limit if seconds <= 0 else width * int(BATCH_SECONDS * rounds / seconds)
        self.amount = max(self._least, min(self._limit, max(width, fitting), 2 * self.amount or 1))

    def isolate(self) -> None:
        """Take as few messages as possible next, so that a failure affects no other messages."""
        self.amount = self._least

    def halve(self, count: int) -> None:
        """Halve the size after a rollback; the next success doubles it again."""
        self.amount = max(1, min(count, self.amount) // 2)


class Sharing:
    """The number of connections that the concurrent handlers of one registration share.

    There are few while a transaction of many handlers ends within the time of a batch, and more, up
    to one per handler, while handlers take longer or use the transaction exclusively for a long
    time.
    """

    def __init__(self, handler: Handler) -> None:
        self._concurrency = handler.concurrency
        self._has_batches = handler.batch is not None
        self._most = min(handler.connections or handler.concurrency, handler.concurrency)
        # A transaction has no more than `prefetch` messages, or one call with a batch.
        least = math.ceil(handler.concurrency / (1 if handler.batch else handler.prefetch))
        self._least = min(self._most, max(SHARED_CONNECTIONS, least))
        self.connections = self._least
        self._grown_at = -math.inf

    @property
    def width(self) -> int:
        """The number of handlers that run concurrently in one transaction.

        It is large enough for the other connections to keep all handlers busy while one commits.
        """
        if self._has_batches or self.connections >= self._concurrency:
            return 1
        return math.ceil(self._concurrency / max(1, self.connections - 1))

    def grow(self, connections: int, now: float) -> bool:
        """Add connections after a slow batch with this many; return whether there are more."""
        if connections == self.connections:
            self.connections = min(self._most, 2 * connections)
            self._grown_at = now
        return self.connections > connections

    def shrink(self, connections: int, round_seconds: float, now: float) -> bool:
        """Remove connections after a fast batch, unless they were added recently.

        Returns whether there are fewer.
        """
        is_recent = now - self._grown_at < KEEP_SECONDS
        if is_recent or connections != self.connections or round_seconds > BATCH_SECONDS / 4:
            return False
        self.connections = max(self._least, connections // 2)
        return self.connections < connections


@dataclass(frozen=True, slots=True)
class Failure:
    """A handler's error, and its message if it is known."""

    message: Message | None
    error: BaseException
    seconds: float = 0.0


class Batch:
    """The messages of one transaction, and the text that commits them and takes more."""

    def __init__(self, handler: Handler) -> None:
        self._source = function("batch", handler.queue, "by", handler.consumer)
        # A batch handler has a fixed size, however long it takes.
        limit = handler.batch or handler.prefetch
        self._size = BatchSize(limit, handler.batch or FIRST_BATCH_SIZE)
        self._width = handler.batch
        self._conflicts = 0
        self.took([])

    @property
    def amount(self) -> int:
        """The number of messages to take next."""
        return self._size.amount

    def statement(self, *, is_last: bool = False) -> str:
        """Return the text that commits the current batch, if any, and takes the next one."""
        commit = f"{_CHECK.format(self.xid)}commit" if self.taken and self.xid else "commit"
        if is_last:
            return commit
        take = _BEGIN + select_batch(Message, f"{self._source}({self.amount})") + _XID
        return f"{commit}; {take}" if self.taken else take

    def took(
        self,
        messages: list[Message],
        xid: str | None = None,
        record: str | None = None,
        taken_at: datetime = FIRST_MOMENT,
    ) -> None:
        """Record which messages were taken, by which transaction, and the server's record."""
        self.taken = messages
        self.xid = xid
        # The time of the server, and how long each handler took.
        self.taken_at = taken_at
        self.seconds: list[float] = []
        # mbus.give_back needs it.
        self.record = record
        # The runners of the handlers take from this queue and append to the two lists.
        is_batch = bool(self._width and messages)
        self.waiting: deque[Any] = deque([MessageBatch(messages)] if is_batch else messages)
        self.done: list[Message] = []
        self.failures: list[Failure] = []

    def handled(self, seconds: float, width: int) -> None:
        """Record that the handlers have returned for all messages, and how long they took."""
        self._size.adjust(len(self.taken), seconds, self._width or width)
        self._conflicts = 0

    def rest(self) -> list[Message]:
        """Return the messages whose handlers have not returned."""
        done = {message.id for message in self.done}
        return [message for message in self.taken if message.id not in done]

    def failed(self, failures: list[Failure], *, is_lost: bool = False) -> list[Failure]:
        """Drop a batch that was rolled back and return the failed attempts.

        The other messages are taken again. A conflict with another transaction or a lost connection
        is not a failed attempt, unless it happened too often. If the message at fault is unknown,
        the batch is halved until one message is left, so that the failure is attributed to it.
        """
        attempts = [each for each in failures if not (is_lost or is_conflict(each.error))]
        if not attempts:
            self._conflicts += 1
            if self._conflicts <= MAX_CONFLICTS:
                self._size.isolate()
                self.took([])
                return []
            self._conflicts = 0
            attempts = failures
        if len(self.taken) == 1:
            attempts = [Failure(self.taken[0], attempts[0].error)]
        self._size.halve(len(self.taken))
        self.took([])
        return attempts

    def committed(self) -> None:
        """Drop a batch that was committed before all of its messages were handled."""
        self._size.isolate()
        self.took([])
