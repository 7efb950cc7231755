"""`AsyncExchange`: the blocking client in threads, for programs with an event loop.

The connection is an asynchronous one of psycopg, whose statements run in the event loop while the
thread waits for them, or a blocking one of psycopg, sqlite3 or firebird-driver.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from postroad.exchange.client import standalone
from postroad.exchange.client.standalone import Exchange, Process, Work

P = ParamSpec("P")
R = TypeVar("R")


class _AsyncPostgres(standalone._Postgres):
    """The session of an asynchronous connection of psycopg, for a thread."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__(connection)
        self._loop = asyncio.get_running_loop()

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        running = self._execute(statement, parameters)
        return asyncio.run_coroutine_threadsafe(running, self._loop).result()

    async def _execute(self, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        async with self.connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement.replace("?", "%s").encode(), parameters or None)
            self.status = cursor.statusmessage
            return await cursor.fetchall() if cursor.description else []


def _usable(connection: Any) -> Any:
    """Return what a thread can use of a connection."""
    return _AsyncPostgres(connection) if isinstance(connection, AsyncConnection) else connection


def _in_thread(
    method: Callable[Concatenate[Exchange, P], R],
) -> Callable[Concatenate[AsyncExchange, P], Awaitable[R]]:
    """Make a method of `Exchange` one of `AsyncExchange`, which calls it in a thread."""

    @functools.wraps(method)
    async def call(self: AsyncExchange, /, *given: P.args, **named: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.exchange, *given, **named)

    return call


def _block(
    method: Callable[Concatenate[Exchange, P], Process],
) -> Callable[Concatenate[AsyncExchange, P], AsyncProcess]:
    """Wrap the block of a blocking process for `async with`."""

    @functools.wraps(method)
    def make(self: AsyncExchange, /, *given: P.args, **named: P.kwargs) -> AsyncProcess:
        return AsyncProcess(method(self.exchange, *given, **named))

    return make


async def _ended(
    call: Callable[..., Any], *given: Any, on_cancel: Callable[[], None] = lambda: None
) -> tuple[asyncio.Future[Any], asyncio.CancelledError | None]:
    """Wait until a call in a thread has ended, also when this task is cancelled.

    Leaving earlier would return the connection while it is still in use: the enclosing code would
    roll back the transaction whose commit is then confirmed.
    """
    ending = asyncio.get_running_loop().run_in_executor(None, call, *given)
    cancellation: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError as cancelled:
            cancellation = cancelled
            on_cancel()
    return ending, cancellation


def _result(ending: asyncio.Future[Any], cancellation: asyncio.CancelledError | None) -> Any:
    if cancellation is not None:
        raise cancellation from ending.exception()
    return ending.result()


class AsyncExchange:
    """The exchange over HTTP, for programs with an event loop. Same names as `Exchange`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = standalone.TIMEOUT_SECONDS_DEFAULT,
        patience: float = standalone.PATIENCE_SECONDS_DEFAULT,
        context: Any = None,
    ) -> None:
        self.exchange = Exchange(url, token, timeout=timeout, patience=patience, context=context)
        # A property cannot be awaited, so linked content is fetched before it is used.
        self.exchange.fetches_all = True

    send = _in_thread(Exchange.send)
    status = _in_thread(Exchange.status)
    receive = _in_thread(Exchange.receive)
    ack = _in_thread(Exchange.ack)
    process = _block(Exchange.process)

    async def settle(
        self, database: str, connection: Any, processes: Iterable[str]
    ) -> dict[str, str]:
        """Settle processes by their markers and report them; returns their outcomes."""
        given = database, _usable(connection), processes
        outcomes: dict[str, str] = _result(*await _ended(self.exchange.settle, *given))
        return outcomes


class AsyncProcess:
    """The block of `AsyncExchange.process`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        # A copy, because a cancellation sets its patience to 0.
        self._exchange = process.exchange = copy.copy(process.exchange)

    async def __aenter__(self) -> Work:
        process = self._process
        process.session = standalone.session_of(_usable(process.session.connection))
        entering, cancelled = await _ended(process.__enter__, on_cancel=self._hurry)
        if cancelled is not None and entering.exception() is None:
            # The block has begun but is not entered.
            await _ended(process.__exit__, type(cancelled), cancelled, None)
        work: Work = _result(entering, cancelled)
        return work

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        _result(*await _ended(self._process.__exit__, kind, error, traceback))

    def _hurry(self) -> None:
        self._exchange.patience = 0.0
