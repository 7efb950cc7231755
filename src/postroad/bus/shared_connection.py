"""The connection that a handler in transaction mode gets, which others may share.

Handlers of one batch run concurrently and share its transaction. From its first statement until it
ends a handler has the transaction to itself, so that a savepoint, a lock or a query of one handler
means what it would mean in a transaction of its own. Those that have not used the connection yet
wait for that in their first statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from postroad.bus.errors import TransactionFailed, TransactionOwned
from postroad.bus.session import adapt

# A handler that waits longer may be waiting for one that waits for it in turn, outside of the
# database. Then it gives way, as after a deadlock.
MAX_WAIT_SECONDS = 5.0


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


class _Owned:
    """A connection that a handler is given: its transaction is the worker's to end."""

    def commit(self) -> Any:
        """Refuse: the worker commits when the handler has returned."""
        raise TransactionOwned("a handler does not commit", hint="return, and the worker commits")

    def rollback(self) -> Any:
        """Refuse: the worker rolls back when the handler raises."""
        raise TransactionOwned("a handler does not roll back", hint="raise, and the worker does")

    def __del__(self, *_: object) -> None:
        """Do not warn: the worker closes the one session of all these objects."""


class TransactionConnection(_Owned, Connection[Any]):
    """The connection of a handler that blocks."""

    @classmethod
    def beside(cls, connection: AsyncConnection[Any]) -> Self:
        """Return the blocking connection to the session of one that awaits."""
        beside = cls(connection.pgconn)
        beside._autocommit = connection._autocommit
        # Names of prepared statements belong to the session.
        beside._prepared = connection._prepared
        return beside


class AsyncTransactionConnection(_Owned, AsyncConnection[Any]):
    """The connection of a handler that awaits."""


class Use:
    """One handler's use of a shared transaction, in place of the lock of its connection.

    `is_failed` is called once the transaction is the handler's, and returns whether it will be
    rolled back anyway. `refusal` is the error of a first statement that could not be allowed.
    """

    def __init__(self, is_failed: Callable[[], bool]) -> None:
        self._is_failed = is_failed
        self.is_owner = False
        self.refusal: psycopg.Error | None = None

    def _begin(self, *, is_free: bool) -> None:
        self.is_owner = is_free
        if not is_free:
            reason = "another handler keeps the transaction that this handler shares"
        elif self._is_failed():
            reason = "the transaction that this handler shares is rolled back"
        else:
            return
        # Not the handler's failure: its message is handled again, as after a deadlock.
        self.refusal = psycopg.errors.DeadlockDetected(reason)
        raise self.refusal


class TaskUse(Use):
    """The use by a handler that awaits; `transaction` is what the handlers compete for."""

    def __init__(self, transaction: asyncio.Lock, is_failed: Callable[[], bool]) -> None:
        super().__init__(is_failed)
        self._transaction = transaction
        self._statement = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._statement.acquire()
        try:
            if not self.is_owner:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(MAX_WAIT_SECONDS):
                        self.is_owner = await self._transaction.acquire()
                self._begin(is_free=self.is_owner)
        except BaseException:
            self._statement.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._statement.release()

    def end(self) -> None:
        """Leave the transaction to the others."""
        if self.is_owner:
            self._transaction.release()


class ThreadUse(Use):
    """The use by a handler that blocks; `transaction` is what the handlers compete for."""

    def __init__(self, transaction: threading.Lock, is_failed: Callable[[], bool]) -> None:
        super().__init__(is_failed)
        self._transaction = transaction
        self._statement = threading.Lock()

    def __enter__(self) -> None:
        self._statement.acquire()
        try:
            if not self.is_owner:
                self._begin(is_free=self._transaction.acquire(timeout=MAX_WAIT_SECONDS))
        except BaseException:
            self._statement.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._statement.release()

    def end(self) -> None:
        """Leave the transaction to the others."""
        if self.is_owner:
            self._transaction.release()


class _ThreadCursor(Cursor[Any]):
    """A cursor whose methods block, but are awaited like those of an `AsyncCursor`."""

    async def execute(self, *arguments: Any) -> Any:  # type: ignore[override]
        return super().execute(*arguments)

    async def fetchall(self) -> Any:  # type: ignore[override]
        return super().fetchall()


class Session:
    """A connection, and the objects through which handlers use it."""

    def __init__(self, connection: AsyncTransactionConnection, *, blocks: bool) -> None:
        self.connection = connection
        self._blocks = blocks
        self._given = TransactionConnection.beside(connection) if blocks else connection
        self._transaction: Any = threading.Lock() if blocks else asyncio.Lock()
        self.cursor = AsyncCursor(connection, row_factory=tuple_row)
        adapt(self.cursor)
        # For coroutines that run in a thread.
        self.thread_cursor: Any = None
        if isinstance(self._given, Connection):
            self.thread_cursor = _ThreadCursor(self._given, row_factory=tuple_row)
            adapt(self.thread_cursor)

    def check_open(self) -> None:
        """Raise unless the transaction of a handler that returned can be committed.

        Raises TransactionFailed after a database error, TransactionOwned if the handler ended it.
        """
        check_open(self.connection.pgconn.transaction_status)

    def alone(self) -> Any:
        """Return the connection for handlers that run one after the other."""
        return self._given

    def shared(self, is_failed: Callable[[], bool]) -> tuple[Any, TaskUse | ThreadUse]:
        """Return a connection for one handler of several, and its use of the transaction."""
        use = (ThreadUse if self._blocks else TaskUse)(self._transaction, is_failed)
        connection = object.__new__(type(self._given))
        connection.__dict__.update(self._given.__dict__, lock=use)
        return connection, use
