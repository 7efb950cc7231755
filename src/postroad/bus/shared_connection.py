"""The connection that a handler in transaction mode gets, which other handlers may share.

Handlers of one batch run concurrently and share its transaction. From its first statement until it
ends, a handler uses the transaction exclusively, so that a savepoint, a lock or a query of one
handler behaves as in a separate transaction. Other handlers wait in their first statement until
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
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from postroad.bus.errors import TransactionFailed, TransactionOwned
from postroad.bus.session import open_cursor

# If one handler uses the transaction for longer, it may be waiting for one that waits for the
# transaction, outside the database. Then the waiting handlers fail and are retried, as after a
# deadlock.
MAX_WAIT_SECONDS = 5.0


def check_open(status: int, *, was_ended: bool = False) -> None:
    """Raise TransactionFailed or TransactionOwned unless a transaction can be committed."""
    if status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        raise TransactionFailed("the handler caught a database error; its work cannot be committed")
    if was_ended or status == TransactionStatus.IDLE:
        raise TransactionOwned("the handler ended the worker's transaction")


def cut(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Shut a connection's socket down while it is in use; any thread may do that."""
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)


class _Owned:
    """The connection of a handler; only the worker ends its transaction."""

    def commit(self) -> Any:
        """Refuse: the worker commits when the handler has returned."""
        raise TransactionOwned("a handler must not commit", hint="return, and the worker commits")

    def rollback(self) -> Any:
        """Refuse: the worker rolls back when the handler raises."""
        raise TransactionOwned("a handler does not roll back", hint="raise, and the worker does")

    def close(self) -> Any:
        """Refuse: the worker closes its connections."""
        raise TransactionOwned("a handler must not close the worker's connection")

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
    """The use of a session's transaction by one of several handlers, or by one after the other.

    It replaces the lock of their connection. `is_failed` is called when a handler has got the
    transaction, and returns whether it will be rolled back anyway. `refusal` is the error of a
    first statement that was refused.
    """

    def __init__(self, session: Session, statement: Any, is_failed: Callable[[], bool]) -> None:
        self._session = session
        self._statement = statement
        self._is_failed = is_failed
        self.is_owner = False
        self.is_ended = False
        self.refusal: psycopg.Error | None = None
        self._was_ended = False

    @property
    def _status(self) -> int:
        return self._session.connection.pgconn.transaction_status

    def check_open(self) -> None:
        """Raise unless the transaction can be committed after a handler has returned.

        Raises TransactionFailed after a database error, TransactionOwned if the handler ended it.
        """
        check_open(self._status, was_ended=self._was_ended)

    def __enter__(self) -> None:
        self._statement.acquire()
        while not (self.is_owner or self.is_ended):
            owners = self._session.owners
            if self._session.transaction.acquire(timeout=MAX_WAIT_SECONDS):
                self._own()
            elif owners == self._session.owners:
                break
        self._begin()

    async def __aenter__(self) -> None:
        await self._statement.acquire()
        while not (self.is_owner or self.is_ended):
            owners = self._session.owners
            try:
                async with asyncio.timeout(MAX_WAIT_SECONDS):
                    await self._session.transaction.acquire()
                    self._own()
            except TimeoutError:
                if owners == self._session.owners:
                    break
            except BaseException:
                self._statement.release()
                raise
        self._begin()

    def _own(self) -> None:
        self.is_owner = True
        self._session.owners += 1

    def _begin(self) -> None:
        if self.is_ended:
            self._release()
            self._statement.release()
            raise psycopg.InterfaceError("the handler has ended")
        if not self.is_owner:
            reason = "another handler holds the transaction that this handler shares"
        elif self._is_failed():
            reason = "the transaction that this handler shares is rolled back"
        else:
            return
        self._statement.release()
        # This is not a failure of the handler: its message is handled again, as after a deadlock.
        self.refusal = psycopg.errors.DeadlockDetected(reason)
        raise self.refusal

    def _release(self) -> None:
        if self.is_owner:
            self.is_owner = False
            self._session.transaction.release()

    def __exit__(self, *_: object) -> None:
        # Statements after a handler's own commit run in another transaction than the batch.
        self._was_ended |= self._status == TransactionStatus.IDLE
        self._statement.release()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    async def end(self) -> None:
        """Release the transaction for the others, after the statement in flight."""
        self.is_ended = True
        if self.is_owner:
            statement = self._statement.acquire()
            if not isinstance(statement, bool):
                await statement
            self._release()
            self._statement.release()


class Session:
    """A connection, and the objects through which handlers use it."""

    def __init__(self, connection: AsyncTransactionConnection, *, blocks: bool) -> None:
        self.connection = connection
        self._given = TransactionConnection.beside(connection) if blocks else connection
        self._new_lock: Callable[[], Any] = threading.Lock if blocks else asyncio.Lock
        # The lock for which the handlers of a batch compete, and how often it was acquired.
        self.transaction: Any = self._new_lock()
        self.owners = 0
        self.cursor = open_cursor(connection)

    def share(self, is_failed: Callable[[], bool]) -> tuple[Any, Use]:
        """Return a connection for one handler or more, and their use of the transaction."""
        use = Use(self, self._new_lock(), is_failed)
        connection = object.__new__(type(self._given))
        connection.__dict__.update(self._given.__dict__, lock=use)
        return connection, use
