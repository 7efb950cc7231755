"""The transaction mode's statements and decisions, for both colours. Pure.

A batch is committed and the next one taken in one round trip, as one text of several statements. If
the commit fails the server skips the rest, and the batch is treated like one whose handler failed.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from postroad.bus.appetite import Appetite
from postroad.bus.errors import TransactionFailed, TransactionOwned
from postroad.bus.message import Message
from postroad.bus.parameters import function
from postroad.bus.rows import select
from postroad.bus.worker import MAX_CONFLICTS, Handler

__all__ = [
    "AsyncTransactionConnection",
    "Batch",
    "TransactionConnection",
    "cut",
    "is_open",
]

# The take refuses higher levels, whatever the database's default may be.
_BEGIN = "begin isolation level read committed; "


class Batch:
    """How many messages to take next, and with which text."""

    def __init__(self, handler: Handler) -> None:
        self._source = function("consumen", handler.queue, "by", handler.consumer)
        self._appetite = Appetite(handler.prefetch)
        self._careful = 0
        self._conflicts = 0
        self.taken: list[Message] = []

    @property
    def amount(self) -> int:
        """One while messages of a failed batch are redone, otherwise what the appetite says."""
        return 1 if self._careful else self._appetite.amount

    def statement(self, *, is_last: bool = False) -> str:
        """Give the text that commits what was taken, if anything, and takes more."""
        if is_last:
            return "commit"
        commit = "commit; " if self.taken else ""
        return commit + _BEGIN + select(Message, f"{self._source}({self.amount})")

    def took(self, messages: list[Message]) -> None:
        """Remember what was taken."""
        self.taken = messages
        if self._careful:
            self._careful -= 1

    def handled(self, seconds: float) -> None:
        """Note that the handler is through with all that was taken, and in what time."""
        self._appetite.fed(len(self.taken), seconds)
        self._conflicts = 0

    def conflicted(self) -> bool:
        """Forget a batch that lost a conflict with another transaction; False when it is enough.

        Nobody is at fault, so nothing is counted against a message and all are taken again, one by
        one. A handler that loses every time is a failure after all.
        """
        self._conflicts += 1
        if self._conflicts > MAX_CONFLICTS:
            self._conflicts = 0
            return False
        self._careful = len(self.taken)
        self.taken = []
        return True

    def failed(self, message: Message | None) -> Message | None:
        """Forget a batch that was rolled back and tell which message was at fault, if any is known.

        The others are taken again one by one, so that each next failure has a name.
        """
        if message is None and len(self.taken) == 1:
            message = self.taken[0]
        self._careful = len(self.taken) - (message is not None)
        self.taken = []
        return message


def is_open(status: int) -> bool:
    """Tell, after a handler returned, whether its transaction can be committed.

    Raises TransactionFailed when it cannot. False means that the handler ended it with a
    statement of its own, which only its author can mend.
    """
    if status == TransactionStatus.INTRANS:
        return True
    if status == TransactionStatus.IDLE:
        return False
    raise TransactionFailed("the handler caught a database error; its work cannot be committed")


def cut(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Cut a connection under whoever uses it; any thread may do that to a socket."""
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)


class TransactionConnection(Connection[Any]):
    """The connection that a handler is given: its transaction is the worker's to end."""

    def commit(self) -> None:
        """Refuse: the worker commits when the handler has returned."""
        raise TransactionOwned("a handler does not commit", hint="return, and the worker commits")

    def rollback(self) -> None:
        """Refuse: the worker rolls back when the handler raises."""
        raise TransactionOwned("a handler does not roll back", hint="raise, and the worker does")


class AsyncTransactionConnection(AsyncConnection[Any]):
    """The connection that a handler is given: its transaction is the worker's to end."""

    async def commit(self) -> None:
        """Refuse: the worker commits when the handler has returned."""
        raise TransactionOwned("a handler does not commit", hint="return, and the worker commits")

    async def rollback(self) -> None:
        """Refuse: the worker rolls back when the handler raises."""
        raise TransactionOwned("a handler does not roll back", hint="raise, and the worker does")
