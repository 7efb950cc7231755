"""Sends Celery tasks in the caller's own database transaction.

```python
with Session(engine) as session, session.begin():
    session.add(order)
    session.flush()
    bill.apply_async((order.id,), connection=TransactionConnection(session))
```

The task is sent if the transaction commits, and not if it rolls back or the process dies. A
statement that fails raises the error of the caller's driver, and nothing is sent again, because the
transaction has failed. A chord is not sent in the transaction: its `apply_async` ignores the
connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import iscoroutinefunction
from itertools import count
from typing import Any

import psycopg
from amqp.protocol import queue_declare_ok_t
from kombu import Connection
from psycopg.rows import tuple_row

from postroad.broker.channel import Channel
from postroad.broker.link import Link
from postroad.broker.routes import Routes
from postroad.broker.transport import Transport


class TransactionConnection(Connection):  # type: ignore[misc]  # Kombu has no types
    """The `connection` of `apply_async` for tasks that are sent with the caller's transaction.

    Takes a connection of psycopg, SQLAlchemy or Django, or a session of SQLAlchemy. In code that
    awaits, call `apply_async` inside `run_sync` of the session or connection; otherwise TypeError
    is raised.

    A queue that does not exist is created in the same transaction. The database needs the schema of
    the broker, which workers install, and the caller's role the function `broker.publish`.
    """

    def __init__(self, source: Any) -> None:
        link = _CallerLink(source)
        super().__init__(transport=_Transport, transport_options={"link": link})
        self.declared_entities = _Uncached()


class _Uncached(set[int]):
    """Kombu's cache of declarations, left empty because it would outlive a rollback."""

    def add(self, element: int) -> None:
        pass


class _CallerLink(Link):
    """The caller's connection as a link."""

    def __init__(self, source: Any) -> None:
        if iscoroutinefunction(getattr(source, "execute", None)):
            raise TypeError("tasks are sent by blocking code; call apply_async inside run_sync")
        self._source = source

    def run(self, text: str, parameters: Sequence[object] = ()) -> list[Any]:
        source = self._source
        if hasattr(source, "get_bind"):
            source = source.connection()
        if hasattr(source, "exec_driver_sql"):
            if source.dialect.paramstyle == "numeric_dollar":
                numbers = count(1)
                text = re.sub("%s", lambda _: f"${next(numbers)}", text)
            result = source.exec_driver_sql(text, tuple(parameters))
            return list(result) if result.returns_rows else []
        is_driver = isinstance(source, psycopg.Connection)
        opened = psycopg.Cursor(source, row_factory=tuple_row) if is_driver else source.cursor()
        with opened as cursor:
            cursor.execute(text, parameters)
            # In a pipeline the cursor has no description until its rows are read.
            return list(cursor.fetchall()) if text.startswith("select") else []

    def run_prepared(self, text: str, *parameters: str | None) -> list[Any]:
        return self.run(re.sub(r"\$\d", "%s", text), parameters)

    def close(self) -> None:
        """Leave the connection to the caller."""


class _Channel(Channel):
    """Declares queues only when a message needs it: the caller's role may not be permitted."""

    # Published in one statement, without a cache of routes, which would outlive a rollback.
    posts_directly = False

    def __init__(self, *parameters: Any, **options: Any) -> None:
        super().__init__(*parameters, **options)
        self._exchanges: list[Callable[[], Any]] = []
        self._queues: list[Callable[[], Any]] = []

    def exchange_declare(self, *parameters: Any, **options: Any) -> None:
        self._exchanges.append(partial(super().exchange_declare, *parameters, **options))

    def queue_declare(
        self, queue: str | None = None, passive: bool = False, *parameters: Any, **options: Any
    ) -> queue_declare_ok_t:
        declare = partial(super().queue_declare, queue, passive, *parameters, **options)
        if passive or not queue:
            return declare()
        self._queues.append(declare)
        return queue_declare_ok_t(queue, 0, 0)

    def queue_bind(self, *parameters: Any, **options: Any) -> None:
        self._queues.append(partial(super().queue_bind, *parameters, **options))

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any
    ) -> int | None:
        publish = partial(super().basic_publish, message, exchange, routing_key, **options)
        # An exchange alone has no queue that a message could reach.
        steps: list[Callable[[], Any]] = [*self._exchanges, *self._queues] if self._queues else []
        steps.append(publish)
        self._exchanges, self._queues = [], []
        if exchange and "task" not in (message.get("headers") or {}):
            # This is an event: Celery ignores its errors, so they must not abort the transaction.
            with self._savepoint():
                return _last_of(steps)
        # If the queue named by the routing key exists, it need not be declared.
        return (not exchange and publish()) or _last_of(steps)

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        run = self.connection.link.run
        has_savepoint = False
        # Refused outside a transaction, where an error affects nothing else.
        with suppress(Exception):
            run("savepoint postroad_event")
            has_savepoint = True
        try:
            yield
        except BaseException:
            if has_savepoint:
                run("rollback to savepoint postroad_event")
            raise
        if has_savepoint:
            run("release savepoint postroad_event")


def _last_of(steps: list[Callable[[], Any]]) -> int | None:
    results: list[int | None] = [step() for step in steps]
    return results[-1]


class _Transport(Transport):
    Channel = _Channel
    # Errors are raised to the caller, and nothing is retried.
    connection_errors = recoverable_connection_errors = ()
    channel_errors = recoverable_channel_errors = ()

    def establish_connection(self) -> Transport:
        self.link = self.client.transport_options["link"]
        self.routes = Routes(self.link)
        self._avail_channels.append(self.create_channel(self))
        return self

    def verify_connection(self, connection: Transport) -> bool:  # noqa: ARG002
        return True

    def close_connection(self, connection: Transport) -> None:
        """Leave the connection to the caller."""
