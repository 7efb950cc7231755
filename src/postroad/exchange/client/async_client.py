"""`AsyncExchange`: the steps of the client without blocking the event loop.

The connection is an asynchronous one of psycopg, or a blocking one of psycopg, sqlite3 or
firebird-driver, whose calls then run in a thread, one after the other. HTTP runs in threads too:
the calls are few, and only the file that is copied into ERPs implements it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from postroad.exchange.client import standalone
from postroad.exchange.client.standalone import Exchange, Process, Steps, Work

P = ParamSpec("P")
R = TypeVar("R")


class _AsyncPostgres(standalone._PostgresSession):
    """The session of an asynchronous connection of psycopg."""

    async def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        async with self.connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement.replace("?", "%s").encode(), parameters or None)
            self.status = cursor.statusmessage
            return await cursor.fetchall() if cursor.description else []


class _Threaded:
    """Calls the methods of a blocking object in threads."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return functools.partial(asyncio.to_thread, getattr(self._target, name))


def _session_of(connection: Any) -> Any:
    if isinstance(connection, AsyncConnection):
        return _AsyncPostgres(connection)
    return _Threaded(standalone.session_of(connection))


async def carry_out_async(steps: Steps, **targets: Any) -> Any:
    """Make the calls of steps; each step is sent the result of its call."""
    try:
        step = next(steps)
        while True:
            try:
                result = getattr(targets[step[0]], step[1])(*step[2:])
                if inspect.isawaitable(result):
                    result = await result
                if isinstance(result, Generator):
                    result = await carry_out_async(result, **targets)
            except BaseException as error:  # noqa: BLE001 - the steps decide
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value


def _in_thread(
    method: Callable[Concatenate[Exchange, P], R],
) -> Callable[Concatenate[AsyncExchange, P], Awaitable[R]]:
    """Make a method of `Exchange` one of `AsyncExchange`, which calls it in a thread."""

    @functools.wraps(method)
    async def call(self: AsyncExchange, /, *given: P.args, **named: P.kwargs) -> R:
        result = await asyncio.to_thread(method, self.exchange, *given, **named)
        for file in result if isinstance(result, list) else ():
            # A property cannot be awaited, so linked content is fetched before it is used.
            await asyncio.to_thread(Exchange.load, file)
        return result

    return call


def _block(
    method: Callable[Concatenate[Exchange, P], Process],
) -> Callable[Concatenate[AsyncExchange, P], AsyncProcess]:
    """Make the asynchronous block of a blocking one."""

    @functools.wraps(method)
    def make(self: AsyncExchange, /, *given: P.args, **named: P.kwargs) -> AsyncProcess:
        return AsyncProcess(method(self.exchange, *given, **named))

    return make


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

    send = _in_thread(Exchange.send)
    status = _in_thread(Exchange.status)
    receive = _in_thread(Exchange.receive)
    ack = _in_thread(Exchange.ack)
    process = _block(Exchange.process)

    async def settle(
        self, database: str, connection: Any, processes: Iterable[str]
    ) -> dict[str, str]:
        """Settle processes by their markers and report them; returns their outcomes."""
        outcomes: dict[str, str] = await carry_out_async(
            standalone.reported(database, processes),
            http=_Threaded(self.exchange),
            session=_session_of(connection),
        )
        return outcomes


class AsyncProcess:
    """The block of `AsyncExchange.process`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._http = _Threaded(process.exchange)
        self._session = _session_of(process.session.connection)
        self._work: Any = None
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Work:
        work: Work = await self._carry_out(standalone.opened(self._process, fetches_all=True))
        self._work = work
        return work

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        ending = asyncio.ensure_future(self._end(kind, error))
        cancellation: asyncio.CancelledError | None = None
        # Leaving earlier would return the connection while it is still in use: the enclosing code
        # would roll back the transaction whose commit is then confirmed.
        while not ending.done():
            try:
                await asyncio.wait({ending})
            except asyncio.CancelledError as cancelled:
                cancellation = cancelled
        if cancellation is not None:
            raise cancellation from (None if ending.cancelled() else ending.exception())
        ending.result()

    async def _end(self, kind: Any, error: Any) -> None:
        try:
            await self._carry_out(standalone.closed(self._work, kind, error))
        finally:
            await self.release()

    async def _carry_out(self, steps: Steps) -> Any:
        return await carry_out_async(steps, http=self._http, session=self._session, process=self)

    def keep(self, work: Work) -> None:
        """Extend the lease in a task until `release`."""
        self._renewing = asyncio.create_task(self._renew(work))

    async def release(self) -> None:
        """Stop extending the lease."""
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing

    async def _renew(self, work: Work) -> None:
        while not work.is_cancelled:
            await asyncio.sleep(work.lease_seconds / 3)
            await asyncio.to_thread(standalone.renew, self._process.exchange, work)
