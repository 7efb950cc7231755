"""A link: one connection to the database, with the calls of the broker, safe to fork.

A forked child inherits the descriptor, and one byte of it on the wire would end the parent's
session; closing libpq's connection sends such a byte. So the child closes only the descriptor and
marks its links as closed: using one raises the same error as a lost connection.

A link never reconnects: temporary queues and waits belong to the session, and Kombu declares them
again after a connection error.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import psycopg
from psycopg import Connection
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow

from postroad.blocking import finish
from postroad.bus.call import Call
from postroad.bus.schema import BUS
from postroad.bus.session import run_async
from postroad.postgres.connections import connect
from postroad.postgres.manifest import Schema
from postroad.postgres.migrator import install

T = TypeVar("T")
CHANNEL = "mbus"
SCHEMAS = (BUS, Schema("broker", "postroad.broker", ("hstore",)))

Texts = tuple[str | None, ...]

_installed: set[str] = set()
_installing = threading.Lock()
_links: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """A session of the broker; each statement is a transaction unless grouped."""

    def __init__(self, dsn: str, purpose: str) -> None:
        self.connection: Connection[TupleRow] = connect(
            dsn, application_name=f"postroad {purpose}", autocommit=True
        )
        self._owner = os.getpid()
        # Pipelines of two threads must not mix.
        self._guard = threading.RLock()
        self._callbacks: list[Callable[[str], None]] = []
        self._prepared: dict[str, bytes] = {}
        try:
            _ensure_installed(dsn, self.connection)
        except BaseException:
            self.connection.close()
            raise
        [[pid]] = self.run("select pg_backend_pid()")
        self._is_pooled = pid != self.connection.info.backend_pid
        if self._is_pooled:
            self.connection.prepare_threshold = None
        _links.add(self)

    @property
    def is_closed(self) -> bool:
        """Whether the link is lost or belongs to the parent process."""
        return self._owner != os.getpid() or self.connection.closed

    def run(self, text: str, parameters: Sequence[object] = ()) -> list[TupleRow]:
        """Run one statement and return its rows."""
        with self._guard:
            cursor = self._mine().execute(text, parameters)
            return cursor.fetchall() if cursor.description else []

    def call(self, call: Call[T]) -> T:
        """Run a call of the bus."""
        with self._guard:
            return finish(run_async(self._mine(), call))

    def run_apart(self, statements: Iterable[tuple[str, Sequence[object]]]) -> list[list[TupleRow]]:
        """Run statements in one round trip, each in a separate transaction."""
        connection = self._mine()
        with self._guard, connection.pipeline() as pipeline:
            cursors = []
            for text, parameters in statements:
                cursors.append(connection.execute(text, parameters))
                pipeline.sync()
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def run_prepared(self, text: str, *parameters: str | None) -> list[Texts]:
        """Run a statement of texts, prepared unless pooled, at a third of the cost of a cursor."""
        with self._guard:
            raw = self._mine().pgconn
            # The driver's types do not allow a null parameter.
            values = cast(
                "list[bytes]", [None if one is None else one.encode() for one in parameters]
            )
            if self._is_pooled:
                result = _check(raw.exec_params(text.encode(), values))
            else:
                name = self._prepared.get(text)
                if name is None:
                    name = f"b{len(self._prepared)}".encode()
                    _check(raw.prepare(name, text.encode()))
                    self._prepared[text] = name
                result = _check(raw.exec_prepared(name, values))
            # Notices that came with the answer do not make the socket readable again.
            if self._callbacks:
                self._dispatch()
            return [
                tuple(
                    None if (value := result.get_value(row, column)) is None else value.decode()
                    for column in range(result.nfields)
                )
                for row in range(result.ntuples)
            ]

    def listen(self, channel: str, callback: Callable[[str], None]) -> None:
        """Call a function for each notice, during any call and in `receive`."""
        with self._guard:
            connection = self._mine()
            connection.add_notify_handler(lambda notice: callback(notice.payload))
            self._callbacks.append(callback)
            connection.execute(f"listen {channel}")

    def receive(self) -> None:
        """Read pending notices; raises when the connection is lost."""
        with self._guard:
            self._mine().pgconn.consume_input()
            self._dispatch()

    def _dispatch(self) -> None:
        while (notice := self.connection.pgconn.notifies()) is not None:
            for callback in self._callbacks:
                callback(notice.extra.decode())

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._mine().fileno()

    def close(self) -> None:
        """End the session; a second call, or one in a forked child, does nothing."""
        _links.discard(self)
        if not self.is_closed:
            self.connection.close()

    def __del__(self) -> None:
        # Results have a link per thread, and nothing reports the end of a thread.
        if hasattr(self, "_owner") and not self.is_closed:
            self.connection.close()

    def _mine(self) -> Connection[Any]:
        if self._owner != os.getpid():
            raise psycopg.OperationalError("the connection belongs to the parent process")
        return self.connection


def _ensure_installed(dsn: str, connection: Connection[Any]) -> None:
    """Install the bus and the broker if they are missing; an upgrade is left to the operator."""
    if dsn in _installed:
        return
    row = connection.execute("select to_regclass('broker.chord_part') is not null").fetchone()
    if not (row and row[0]):
        with _installing, connect(dsn, application_name="postroad install") as installing:
            for schema in SCHEMAS:
                install(installing, schema)
    _installed.add(dsn)


def _check(result: PGresult) -> PGresult:
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        failure = psycopg.errors.error_from_result(result)
        if failure.sqlstate is None:
            # An error of libpq, not of the server, means that the connection is lost.
            raise psycopg.OperationalError(str(failure))
        raise failure
    return result


def _abandon_all() -> None:
    for link in list(_links):
        with contextlib.suppress(OSError, psycopg.Error):
            os.close(link.connection.fileno())
    _links.clear()


os.register_at_fork(after_in_child=_abandon_all)
