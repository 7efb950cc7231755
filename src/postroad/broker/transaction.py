"""Sends Celery tasks in the caller's own database transaction.

```python
with Session(engine) as session, session.begin():
    session.add(order)
    bill.apply_async((order.id,), producer=TransactionProducer(session))
```

**What it promises.** The task is sent if the transaction commits, and not if it rolls back or the
process dies. Messages are those of the transport, and a statement that fails raises the error of
the caller's driver. Nothing is sent again after an error, because the transaction has failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

import psycopg
from kombu import Connection, Producer
from psycopg.rows import tuple_row

from postroad.broker.channel import Channel
from postroad.broker.link import Link
from postroad.broker.routes import Routes
from postroad.broker.transport import Transport


class TransactionProducer(Producer):  # type: ignore[misc]  # Kombu has no types
    """The `producer` of `apply_async` for tasks that are sent with the caller's transaction.

    Takes a connection of psycopg, SQLAlchemy or Django, or a session of SQLAlchemy. In code that
    awaits, call `apply_async` inside `run_sync` of the session or connection.

    A queue that does not exist is created in the same transaction. The database needs the schema of
    the broker, which workers install, and the caller's role the function `broker.publish`. Raises
    TypeError for a connection that has to be awaited.
    """

    def __init__(self, source: Any) -> None:
        link = _CallerLink(source)
        super().__init__(Connection(transport=_Transport, transport_options={"link": link}))

    def publish(
        self, body: Any, *, exchange: Any = None, declare: Any = None, **options: Any
    ) -> Any:
        """Post a message in the caller's transaction."""
        options["retry"] = False
        if exchange or not declare:
            return super().publish(body, exchange=exchange, declare=declare, **options)
        # A queue named by the routing key: that the message finds it saves declaring it.
        return super().publish(body, exchange=exchange, **options) or super().publish(
            body, exchange=exchange, declare=declare, **options
        )

    def maybe_declare(self, entity: Any, **_: Any) -> None:
        """Declare an exchange or queue; Kombu's cache of them would outlive a rollback."""
        entity(self.channel).declare()


class _CallerLink(Link):
    """The caller's connection as a link."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, psycopg.AsyncConnection) or hasattr(source, "run_sync"):
            raise TypeError("a task is sent by code that blocks; call it inside run_sync")
        self._source = source

    def run(self, text: str, parameters: Sequence[object] = ()) -> list[Any]:
        source = self._source
        if isinstance(source, psycopg.Connection):
            with psycopg.Cursor(source, row_factory=tuple_row) as cursor:
                return cursor.execute(text, parameters).fetchall()
        if hasattr(source, "get_bind"):
            source = source.connection()
        if hasattr(source, "exec_driver_sql"):
            if source.dialect.paramstyle == "numeric_dollar":
                numbers = count(1)
                text = re.sub("%s", lambda _: f"${next(numbers)}", text)
            return list(source.exec_driver_sql(text, tuple(parameters)))
        with source.cursor() as cursor:
            cursor.execute(text, parameters)
            return list(cursor.fetchall())

    def run_prepared(self, text: str, *parameters: str | None) -> list[Any]:
        return self.run(re.sub(r"\$\d", "%s", text), parameters)

    def close(self) -> None:
        """Leave the connection to the caller."""


class _Channel(Channel):
    # In one statement and without a cache of routes, which would outlive a rollback.
    posts_directly = False


class _Transport(Transport):
    Channel = _Channel
    # Errors are the caller's, and nothing is tried again.
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
