"""The connection that a handler in transaction mode gets, which other handlers may share.

Handlers of one batch run concurrently and share its transaction. From its first statement until it
ends, a handler uses the transaction exclusively, so that a savepoint, a lock or a query of one
handler behaves as in a transaction of its own. Other handlers wait in their first statement until
the transaction is free.
"""

from __future__ import annotations

import asyncio
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

# A handler that waits longer may be waiting for one that waits for it, outside the
# database. Then it fails and is retried, as after a deadlock.
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
        """Do not warn: the worker closes the session that all these objects share."""


class TransactionConnection(_Owned, Connection[Any]):
    """The connection of a handler that blocks."""

    @classmethod
    def beside(cls, connection: AsyncConnection[Any]) -> Self:
        """Return a blocking connection that uses the session of an async one."""
        beside = cls(connection.pgconn)
        beside._autocommit = connection._autocommit
        # Names of prepared statements belong to the session.
        beside._prepared = connection._prepared
        return beside


class AsyncTransactionConnection(_Owned, AsyncConnection[Any]):
    """The connection of a handler that awaits."""


class Use:
    """One handler's use of a shared transaction, in place of the lock of its connection.

    `transaction` is the lock that the handlers compete for; `is_failed` is called once it is the
    handler's, and returns whether the transaction will be rolled back anyway. `refusal` is the
    error of a first statement that could not be allowed.
    """

    def __init__(self, transaction: Any, statement: Any, is_failed: Callable[[], bool]) -> None:
        self._transaction = transaction
        self._statement = statement
        self._is_failed = is_failed
        self.is_owner = False
        self.is_ended = False
        self.refusal: psycopg.Error | None = None

    def __enter__(self) -> None:
        self._statement.acquire()
        if self.is_ended:
            self._begin()
        if not self.is_owner:
            self.is_owner = self._transaction.acquire(timeout=MAX_WAIT_SECONDS)
            self._begin()

    async def __aenter__(self) -> None:
        await self._statement.acquire()
        if self.is_ended:
            self._begin()
        if not self.is_owner:
            try:
                async with asyncio.timeout(MAX_WAIT_SECONDS):
                    self.is_owner = await self._transaction.acquire()
            except TimeoutError:
                pass
            except BaseException:
                self._statement.release()
                raise
            self._begin()

    def _begin(self) -> None:
        if self.is_ended:
            if self.is_owner:
                self.is_owner = False
                self._transaction.release()
            self._statement.release()
            raise psycopg.InterfaceError("the handler has ended")
        if not self.is_owner:
            reason = "another handler holds the transaction that this handler shares"
        elif self._is_failed():
            reason = "the transaction that this handler shares is rolled back"
        else:
            return
        self._statement.release()
        # Not the handler's failure: its message is handled again, as after a deadlock.
        self.refusal = psycopg.errors.DeadlockDetected(reason)
        raise self.refusal

    def __exit__(self, *_: object) -> None:
        self._statement.release()

    async def __aexit__(self, *_: object) -> None:
        self._statement.release()

    async def end(self) -> None:
        """Release the transaction for the others, after the statement in flight."""
        self.is_ended = True
        if self.is_owner:
            statement = self._statement.acquire()
            if not isinstance(statement, bool):
                await statement
            self.is_owner = False
            self._transaction.release()
            self._statement.release()


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
        self._given = TransactionConnection.beside(connection) if blocks else connection
        self._new_lock: Callable[[], Any] = threading.Lock if blocks else asyncio.Lock
        self._transaction = self._new_lock()
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

    def shared(self, is_failed: Callable[[], bool]) -> tuple[Any, Use]:
        """Return a connection for one handler of several, and its use of the transaction."""
        use = Use(self._transaction, self._new_lock(), is_failed)
        connection = object.__new__(type(self._given))
        connection.__dict__.update(self._given.__dict__, lock=use)
        return connection, use
