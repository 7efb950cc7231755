"""`AsyncExchange`: the steps of the client, carried out without blocking the event loop.

The connection may be psycopg's asynchronous one, or a blocking one of psycopg, sqlite3 or
firebird-driver, whose calls then happen in a thread, one after the other. HTTP happens in threads
too: the calls are few, and the file that is copied into ERPs stays the only one that speaks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from postroad.exchange.client.standalone import (
    GUARD_POSTGRES,
    IS_SAME_POSTGRES,
    KINDS_POSTGRES,
    OPEN_FLAG_POSTGRES,
    PATIENCE_SECONDS_DEFAULT,
    TIMEOUT_SECONDS_DEFAULT,
    WAS_COMMITTED_POSTGRES,
    Exchange,
    ExchangeClientError,
    File,
    ProcessCancelled,
    Refused,
    Steps,
    TransactionEnded,
    Work,
    failed,
    finished,
    session_of,
    settled,
    started,
)

__all__ = ["AsyncExchange", "AsyncProcess"]


class _AsyncPostgres:
    """The verbs of a session over psycopg's asynchronous connection."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    def is_idle(self) -> bool:
        return self._connection.info.transaction_status == TransactionStatus.IDLE

    async def has_table(self) -> bool:
        rows = await self.execute("select to_regclass('exchange_marker') is not null")
        return bool(rows[0][0])

    def kind_of(self, error: Exception) -> str:
        return KINDS_POSTGRES.get(getattr(error, "sqlstate", None) or "", "other")

    async def begin(self, purpose: str = "work") -> None:
        if self._connection.autocommit:
            await self.execute("begin")
        if purpose == "probe":
            await self.execute("set local lock_timeout = '500ms'")

    async def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        async with self._connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement.replace("?", "%s").encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def guard(self, block: str, has_marker: bool) -> None:  # noqa: ARG002
        async with self._connection.cursor() as cursor:
            await cursor.execute(GUARD_POSTGRES.format(block).encode(), prepare=False)

    async def is_same(self, block: str) -> bool:
        return bool((await self.execute(IS_SAME_POSTGRES))[0][0] == block)

    def open_flag(self) -> str:
        return OPEN_FLAG_POSTGRES

    async def was_committed(self, block: str) -> bool:
        return bool((await self.execute(WAS_COMMITTED_POSTGRES))[0][0] == block)

    def unguard(self, block: str) -> None:
        """Nothing: settings need no taking away."""

    async def commit(self) -> None:
        async with self._connection.cursor() as cursor:
            await cursor.execute("commit")
            if cursor.statusmessage != "COMMIT":
                raise TransactionEnded("the database rolled back where COMMIT was asked for")

    async def rollback(self) -> None:
        if self._connection.autocommit:
            await self.execute("rollback")
        else:
            await self._connection.rollback()


class _Threaded:
    """Calls the methods of a blocking object in threads."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        async def call(*arguments: Any) -> Any:
            return await asyncio.to_thread(method, *arguments)

        return call


async def carry_out_async(steps: Steps, exchange: Any, session: Any) -> Any:
    """Carry out steps; each is told what came of the one before."""
    targets = {"http": exchange, "session": session}
    try:
        step = next(steps)
        while True:
            try:
                result = getattr(targets[step[0]], step[1])(*step[2:])
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as error:  # noqa: BLE001 - the steps decide what it means
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value


class AsyncExchange:
    """The exchange over HTTP, for programs with an event loop. Same names as `Exchange`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = TIMEOUT_SECONDS_DEFAULT,
        patience: float = PATIENCE_SECONDS_DEFAULT,
        context: Any = None,
    ) -> None:
        self._exchange = Exchange(url, token, timeout=timeout, patience=patience, context=context)

    async def send(
        self,
        database: str,
        body: Any = None,
        *,
        id: str | None = None,
        recipient: str | None = None,
        order: int | None = None,
        content: bytes | None = None,
        media_type: str | None = None,
        messages: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Put a message into a database's mailbox; durable when this returns.

        Give the `id` of your own record: then sending again, after a crash too, is harmless.
        """
        return await asyncio.to_thread(
            self._exchange.send,
            database,
            body,
            id=id,
            recipient=recipient,
            order=order,
            content=content,
            media_type=media_type,
            messages=messages,
        )

    async def status(self, id: str) -> dict[str, Any]:
        """Return what became of a message of this client: `state`, `error` and more."""
        return await asyncio.to_thread(self._exchange.status, id)

    async def receive(self, limit: int = 100, max_bytes: int | None = None) -> list[File]:
        """Return the replies addressed to this client, oldest first; `ack` each when it is safe."""
        files = await asyncio.to_thread(self._exchange.receive, limit, max_bytes)
        await self._fetch(files)
        return files

    async def ack(self, message: File | str) -> None:
        """Say that a reply is safe here; it is not received again. Repeatable."""
        await asyncio.to_thread(self._exchange.ack, message)

    def process(
        self,
        database: str,
        connection: Any,
        *,
        recipient: str | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        senders: list[str] | None = None,
        has_marker: bool = True,
        may_create: bool = True,
    ) -> AsyncProcess:
        """Give a block in which the files of one process are worked on, in one transaction.

        Without a marker (`has_marker=False`, for a database whose schema must not change) a process
        in doubt waits for an administrator. `may_create` lets the table of markers be created.

        The block's `with` raises what the block raised, else ProcessCancelled (rolled back, others
        have the files), TransactionEnded, OutcomeUnknown, NotAnswered, Refused, DatabaseRestored,
        ConnectionBusy.
        """
        wishes = {
            "recipient": recipient,
            "max_files": max_files,
            "max_bytes": max_bytes,
            "senders": senders,
        }
        request = {name: wish for name, wish in wishes.items() if wish is not None}
        may = may_create if has_marker else None
        return AsyncProcess(self._exchange, database, connection, request, may)

    async def settle(
        self, database: str, connection: Any, processes: Iterable[str]
    ) -> dict[str, str]:
        """Settle processes by the marker and tell the exchange; returns their outcomes."""
        session = _session_of(connection)
        outcomes: dict[str, str] = {}
        for process in processes:
            outcome = await carry_out_async(settled(process, database), None, session)
            outcomes[process] = outcome
            await asyncio.to_thread(self._exchange.resolve, process, outcome)
        return outcomes

    async def _fetch(self, files: list[File]) -> None:
        for file in files:
            # Properties cannot be awaited, so what is behind a link is fetched before it is used.
            await asyncio.to_thread(getattr, file, "content")


def _session_of(connection: Any) -> Any:
    if isinstance(connection, AsyncConnection):
        return _AsyncPostgres(connection)
    return _Threaded(session_of(connection))


class AsyncProcess:
    """The block of `AsyncExchange.process`."""

    def __init__(
        self,
        exchange: Exchange,
        database: str,
        connection: Any,
        request: dict[str, Any],
        may_create: bool | None,
    ) -> None:
        self._exchange = exchange
        self._http = _Threaded(exchange)
        self._database = database
        self._session = _session_of(connection)
        self._request = request
        self._may_create = may_create
        self._work: Work | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def _carry_out(self, steps: Steps) -> Any:
        return await carry_out_async(steps, self._http, self._session)

    async def __aenter__(self) -> Work:
        answer = await self._carry_out(started(self._database, self._request, self._may_create))
        process = answer.get("process") or {}
        files = [File(facts, self._exchange.fetch) for facts in process.get("files", ())]
        self._work = work = Work(answer["status"], answer, files)
        try:
            if work:
                self._renewing = asyncio.create_task(self._renew(work))
            for file in files:
                await asyncio.to_thread(getattr, file, "content")
            await self._session.begin()
            if work:
                await self._session.guard(work.block, self._may_create is not None)
        except BaseException as error:
            await self._stop_renewing()
            if work:
                await self._http.quietly("fail", work.id, str(error))
            raise
        return work

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        work = self._work
        assert work is not None  # noqa: S101 - __aenter__ made it
        ending = asyncio.ensure_future(self._end(work, kind, error))
        cancellation: asyncio.CancelledError | None = None
        # Leaving earlier would give the connection back while the end still works on it: the
        # enclosing code would roll back the transaction whose commit is then confirmed.
        while not ending.done():
            try:
                await asyncio.wait({ending})
            except asyncio.CancelledError as cancelled:
                cancellation = cancelled
        if cancellation is not None:
            raise cancellation from (None if ending.cancelled() else ending.exception())
        ending.result()

    async def _end(self, work: Work, kind: Any, error: Any) -> None:
        has_marker = self._may_create is not None
        try:
            if not work:
                await (self._session.rollback() if kind else self._session.commit())
            elif kind is not None:
                said = f"{kind.__name__}: {error}"
                await self._carry_out(failed(work, self._database, has_marker, said))
            elif work.is_cancelled:
                await self._session.rollback()
                raise ProcessCancelled(f"process {work.id} is not ours any more")
            else:
                await self._carry_out(finished(work, self._database, has_marker))
        finally:
            await self._stop_renewing()

    async def _stop_renewing(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing

    async def _renew(self, work: Work) -> None:
        while not work.is_cancelled:
            await asyncio.sleep(work.lease_seconds / 3)
            try:
                answer = await asyncio.to_thread(self._exchange.renew, work.id)
            except Refused:
                work.is_cancelled = True
            except ExchangeClientError:
                continue
            else:
                work.is_cancelled = answer["status"] == "CANCELLED"
