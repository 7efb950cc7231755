"""The transaction mode's statements and decisions, for both colours. Pure.

A batch is committed and the next one taken in one round trip, as one text of several statements. If
the commit fails the server skips the rest, and the batch is treated like one whose handler failed.

A handler can end the transaction with a statement of its own. The id of the transaction that took
the batch determines its outcome: after a rollback the messages are back in the queue, after a
commit all of them are consumed, the ones not yet handled too; those are given back.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from postroad.bus import payload as payloads
from postroad.bus import request, rows
from postroad.bus.call import Call
from postroad.bus.errors import TransactionFailed, TransactionOwned
from postroad.bus.message import Message
from postroad.bus.parameters import function
from postroad.bus.payload import Payload
from postroad.bus.rows import select
from postroad.bus.worker import MAX_CONFLICTS, Handler

FIRST_BATCH_SIZE = 10
BATCH_SECONDS = 0.1

# A server that took over may not have come as far as the id; pg_xact_status would raise.
_WAS_COMMITTED = (
    "select case when xid < pg_snapshot_xmax(pg_current_snapshot())"
    " then pg_xact_status(xid) = 'committed' else false end from (select %s::xid8) batch(xid)"
)
RESTORE_RECORD = "select set_config('mbus.taken', %s, true)"

# The take refuses higher levels, whatever the database's default may be.
_BEGIN = "begin isolation level read committed; "
_XID = "; select pg_current_xact_id_if_assigned()::text as xid, current_setting('mbus.taken', true)"
# Fails unless the transaction is the one of the batch, or that one was committed: what a handler
# did in another transaction must not be committed when the batch was rolled back.
_CHECK = (
    "select 1 / (pg_current_xact_id_if_assigned() is not distinct from '{0}'::xid8"
    " or pg_xact_status('{0}'::xid8) = 'committed')::int as is_checked; "
)


def was_committed(xid: str | None) -> Call[bool | None]:
    """Build the query whether a transaction was committed; None for no transaction."""
    return Call(_WAS_COMMITTED, (xid,), rows.value)


class BatchSize:
    """How many messages a transaction takes: many while handlers are quick, one while slow.

    What was taken in one transaction commits together, and other workers do not get it meanwhile.
    So a batch is to last a tenth of a second, whatever the handler does.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.amount = min(limit, FIRST_BATCH_SIZE)

    def adjust(self, count: int, seconds: float) -> None:
        """Adjust the size to the duration of the last batch; at most double it."""
        if count == 0:
            return
        fitting = self._limit if seconds <= 0 else int(BATCH_SECONDS * count / seconds)
        self.amount = max(1, min(self._limit, fitting, 2 * self.amount))

    def isolate(self) -> None:
        """Take one message after a commit by a handler: the others would count as failed again."""
        self.amount = 1

    def halve(self, count: int) -> None:
        """Take half of a batch that was rolled back; the next success doubles it again."""
        self.amount = max(1, min(count, self.amount) // 2)


class Batch:
    """The messages of one transaction, and the text that commits them and takes more."""

    def __init__(self, handler: Handler) -> None:
        self._source = function("consumen", handler.queue, "by", handler.consumer)
        self._size = BatchSize(handler.prefetch)
        self._conflicts = 0
        self.taken: list[Message] = []
        self.xid: str | None = None
        # What the server recorded about the take; mbus.give_back needs it.
        self.record: str | None = None
        # Place of the first message whose handler has not returned.
        self.place = 0

    @property
    def amount(self) -> int:
        """How many messages to take next."""
        return self._size.amount

    def statement(self, *, is_last: bool = False) -> str:
        """Return the text that commits what was taken, if anything, and takes more."""
        commit = f"{_CHECK.format(self.xid)}commit" if self.taken and self.xid else "commit"
        if is_last:
            return commit
        take = _BEGIN + select(Message, f"{self._source}({self.amount})") + _XID
        return f"{commit}; {take}" if self.taken else take

    def took(
        self, messages: list[Message], xid: str | None = None, record: str | None = None
    ) -> None:
        """Note what was taken, by which transaction."""
        self.taken = messages
        self.xid = xid
        self.record = record
        self.place = 0

    def handled(self, seconds: float) -> None:
        """Note that the handler has returned for all of them, and after what time."""
        self.place = len(self.taken)
        self._size.adjust(len(self.taken), seconds)
        self._conflicts = 0

    def conflicted(self) -> bool:
        """Drop a batch that lost a conflict with another transaction; False after too many.

        It is no message's failure, so nothing is counted and all are taken again, in smaller
        batches. A handler that loses every time has failed after all.
        """
        self._conflicts += 1
        if self._conflicts > MAX_CONFLICTS:
            self._conflicts = 0
            return False
        self._drop()
        return True

    def failed(self, message: Message | None) -> Message | None:
        """Drop a batch that was rolled back and return the message at fault, if it is known.

        The others are taken again. Without a message at fault the batch is halved until it is the
        only one left, so that each failure is attributed to one message in the end.
        """
        if message is None and len(self.taken) == 1:
            message = self.taken[0]
        self._drop()
        return message

    def committed(self) -> None:
        """Drop a batch that was committed before all of it was handled."""
        self._drop()
        self._size.isolate()

    def _drop(self) -> None:
        self._size.halve(len(self.taken))
        self.taken = []


def check_open(status: int) -> None:
    """Raise unless the transaction of a handler that returned can be committed.

    Raises TransactionFailed after a database error, TransactionOwned if the handler ended it.
    """
    if status == TransactionStatus.IDLE:
        raise TransactionOwned("the handler ended the worker's transaction")
    if status != TransactionStatus.INTRANS:
        raise TransactionFailed("the handler caught a database error; its work cannot be committed")


def cut(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Shut a connection's socket down while it is in use; any thread may do that."""
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)


class Answers:
    """The answers of one batch to those who asked, sent together."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self.asked: list[Message] = []
        self._answers: list[object] = []

    def add(self, message: Message, answer: object) -> None:
        """Keep an answer to a request. Raises WrongPayload, which fails the message."""
        if answer is None or not request.asks(message):
            return
        payloads.parameter(self._payload, answer)
        self.asked.append(message)
        self._answers.append(answer)

    def call(self) -> Call[list[str | None]]:
        """Build the call that sends them."""
        return request.reply_many(self.asked, self._payload, self._answers)


class _Owned:
    """A connection that a handler is given: its transaction is the worker's to end."""

    def commit(self) -> Any:
        """Refuse: the worker commits when the handler has returned."""
        raise TransactionOwned("a handler does not commit", hint="return, and the worker commits")

    def rollback(self) -> Any:
        """Refuse: the worker rolls back when the handler raises."""
        raise TransactionOwned("a handler does not roll back", hint="raise, and the worker does")


class TransactionConnection(_Owned, Connection[Any]):
    """The connection of a handler that blocks."""


class AsyncTransactionConnection(_Owned, AsyncConnection[Any]):
    """The connection of a handler that awaits."""
