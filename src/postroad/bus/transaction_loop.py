"""Transaction mode: take, handle concurrently, and commit together with the next take.

```
TransactionLoops   one per handler; as many connections as `Sharing` wants
  TransactionLoop    one connection: batch after batch
    runners            up to `width` handlers of the batch at the same time
```
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus

from postroad import trace
from postroad.bus import calls, request, rows
from postroad.bus import payload as payloads
from postroad.bus.batch import (
    QUICK_HANDLER_SECONDS,
    QUICK_SECONDS,
    RESTORE_RECORD,
    SLOW_SECONDS,
    Batch,
    Failure,
    Sharing,
    was_committed,
)
from postroad.bus.decoding import Undecodable, log_undecodable
from postroad.bus.errors import BusError, TransactionOwned, translate
from postroad.bus.handlers import Handler, MessageBatch, WorkerSettings, judge, log_verdict
from postroad.bus.measures import Measures
from postroad.bus.message import Message
from postroad.bus.outcome import Park, Retry
from postroad.bus.payload import Payload
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.runners import Runners
from postroad.bus.session import fetch_async, run_async
from postroad.bus.shared_connection import AsyncTransactionConnection, Session, cut
from postroad.bus.spans import handled
from postroad.bus.wakeup import AsyncWakeup
from postroad.postgres.connections import parameters
from postroad.service import AutoResetEvent, Service

logger = logging.getLogger(__name__)


class TransactionLoops(Service):
    """The connections of one handler, and the runners that they share."""

    def __init__(
        self,
        dsn: str,
        handler: Handler,
        payload: Payload,
        wakeup: AsyncWakeup,
        settings: WorkerSettings,
        runners: type[Runners[Any]],
    ) -> None:
        super().__init__(f"{handler.queue} by {handler.consumer}")
        self.dsn = dsn
        self.handler = handler
        self.payload = payload
        self.wakeup = wakeup
        self.parameters = parameters(
            dsn,
            application_name="postroad worker",
            is_pooled=not settings.listen,
            autocommit=True,
        )
        self.runners: Runners[BatchRun] = runners(
            self.name, handler.concurrency, BatchRun.handle, self._ended
        )
        self.sharing = Sharing(handler)
        self.measures = Measures(handler.queue, handler.consumer)
        self.function = handled(handler.function, handler.queue, handler.consumer)
        self._loops: list[TransactionLoop] = []

    async def run(self) -> None:
        """Serve until stopped; reconnect when the database fails."""
        try:
            while not self.stopping.is_set():
                await self._resize()
                for loop in self._loops:
                    await loop.ready()
                self.announce_ready()
                await self.changed.wait()
        finally:
            await self.stop_supervised()
            await self.runners.stop()

    async def _resize(self) -> None:
        """Open or close connections; a connection commits its batch before it is closed."""
        self._loops = [loop for loop in self._loops if loop.is_running]
        self._supervises = list(self._loops)
        active = [loop for loop in self._loops if not loop.stopping.is_set()]
        for loop in active[self.sharing.connections :]:
            loop.request_stop()
        for _ in range(len(active), self.sharing.connections):
            self._loops.append(TransactionLoop(self))
            await self.supervise(self._loops[-1])

    def held(self) -> list[str]:
        """Return no iids: messages taken by a transaction are not leased."""
        return []

    def note(self, run: BatchRun, seconds: float, *, has_ended: bool) -> None:
        """Adjust the number of connections to the duration of a batch."""
        now, rounds = time.monotonic(), math.ceil(len(run.batch.taken) / run.width)
        if (
            self.sharing.shrink(run.connections, seconds / rounds, now)
            if has_ended
            else self.sharing.grow(run.connections, now)
        ):
            self.changed.set()

    def request_stop(self) -> None:
        """Ask the loops to commit their batches and end, without waiting for them."""
        super().request_stop()
        for loop in self._loops:
            loop.request_stop()

    def abandon(self) -> None:
        """Give the batches back although handlers are still running after the grace time."""
        for loop in self._loops:
            loop.abandon()

    def _ended(self, _: BatchRun, error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)


class BatchRun:
    """The handlers of one batch; up to `width` runners handle its messages, one after the other."""

    def __init__(self, batch: Batch, owner: TransactionLoops, session: Session) -> None:
        self.batch = batch
        self.connections = owner.sharing.connections
        self.width = owner.sharing.width
        # Answers to the requests among the messages; they are sent together.
        self.answers: list[tuple[Message, object]] = []
        self._payload = owner.payload
        self.began = time.monotonic()
        self.is_abandoned = False
        # Messages that a batch handler has failed; the others are consumed.
        self.rejected: list[Failure] = []
        self._takes_batches = owner.handler.batch is not None
        self._function = owner.function
        self._awaits = not owner.runners.blocks
        self._session = session
        self._runners = owner.runners
        self._running = 0
        self._has_ended = False
        self._all_ended = AutoResetEvent()
        # Held while the number of runners changes.
        self._lock = threading.Lock()

    def start(self, count: int) -> None:
        """Add runners for the batch; those that begin after it has ended do nothing."""
        for _ in range(count):
            self._runners.submit(self)

    async def handle(self) -> None:
        """Handle messages until none is left or one has failed."""
        with self._lock:
            if self._has_ended:
                return
            self._running += 1
        try:
            await self._handle_waiting()
        except BaseException as error:
            # Nothing of the batch may be committed.
            self.batch.failures.append(Failure(None, error))
            raise
        finally:
            with self._lock:
                self._running -= 1
                self._has_ended = not self._running
            if self._has_ended:
                self._all_ended.set()

    def _has_more(self) -> bool:
        batch = self.batch
        return bool(batch.waiting) and not batch.failures and not self.is_abandoned

    async def _handle_waiting(self) -> None:
        # This loop is most of what a message costs, so it calls little.
        batch, takes_batches, function = self.batch, self._takes_batches, self._function
        share = partial(self._session.share, lambda: bool(batch.failures))
        connection, use = share()
        began = time.perf_counter()
        while self._has_more():
            if self.width > 1 and use.is_owner:
                # Others may use the transaction between two messages.
                await use.end()
                connection, use = share()
                began = time.perf_counter()
            try:
                given = batch.waiting.popleft()
            except IndexError:
                # Another thread took the last message.
                break
            failure = None
            try:
                if not takes_batches:
                    trace.follow(given)
                answer = function(given, connection)
                if self._awaits:
                    answer = await answer
                if use.is_owner:
                    use.check_open()
                if answer is not None and not takes_batches and request.asks(given):
                    # An answer that does not fit the queue fails the message.
                    payloads.parameter(self._payload, answer)
                    self.answers.append((given, answer))
            except BaseException as error:
                # Also `sys.exit()` and awaiting a cancelled task are failed attempts.
                failure = error
                if self.is_abandoned:
                    if isinstance(error, asyncio.CancelledError):
                        raise
                    break
            failure, ended = use.refusal or failure, time.perf_counter()
            began, seconds = ended, ended - began
            if takes_batches:
                self._end_batch(given, failure, seconds)
            elif failure is not None:
                batch.failures.append(Failure(given, failure, seconds))
            else:
                batch.done.append(given)
                batch.seconds.append(seconds)
        await use.end()

    def _end_batch(
        self, messages: MessageBatch[Message], failure: BaseException | None, seconds: float
    ) -> None:
        batch = self.batch
        if isinstance(failure, Retry | Park | TransactionOwned):
            batch.failures += [Failure(message, failure) for message in batch.taken]
        elif failure is not None:
            # The failing message is unknown: the batch is halved until one message is left.
            batch.failures.append(Failure(None, failure))
        else:
            self.rejected = [
                Failure(message, messages.failures[message.id], seconds)
                for message in batch.taken
                if message.id in messages.failures
            ]
            batch.done += batch.taken
            batch.seconds += [seconds] * (len(batch.taken) - len(self.rejected))

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until all runners have ended or the time is up; return whether all have."""
        if not self._has_ended:
            await self._all_ended.wait(seconds)
        return self._has_ended


class TransactionLoop(Service):
    """One connection that serves one handler, a batch at a time."""

    def __init__(self, owner: TransactionLoops) -> None:
        super().__init__(owner.name)
        self._owner = owner
        self._handler = owner.handler
        self._read = rows.messages(owner.payload, Message)
        self._wakeup = owner.wakeup
        self._names = (owner.handler.queue, owner.handler.consumer)
        self._facts = owner.handler.facts
        self._connection: Any = None
        self.batch = Batch(owner.handler)
        self._run: BatchRun | None = None
        self._is_quick = True

    async def run(self) -> None:
        """Serve until stopped; reconnect when the database fails."""
        backoff = Backoff()
        while not self.stopping.is_set():
            connection = None
            try:
                connection = await AsyncTransactionConnection.connect(
                    self._owner.dsn, **self._owner.parameters
                )
                self._connection = connection
                self.announce_ready()
                await self._serve(connection, backoff)
            except SURVIVABLE as failure:
                facts = {**self._facts, "reason": str(failure).strip()}
                logger.warning("worker_interrupted", extra=facts)
                await self.pause(backoff.next_seconds())
            finally:
                # Closing gives the messages back. For a connection that was cut this has already
                # happened, and the handler in a thread may still be using it.
                if connection is not None and (self._run is None or not self._run.is_abandoned):
                    await AsyncConnection.close(connection)

    async def _serve(self, connection: AsyncTransactionConnection, backoff: Backoff) -> None:
        batch = self.batch
        if batch.taken:
            # The messages are back in the queue. Whether a handler had committed them cannot be
            # checked here: after a server crash, another transaction may have the same id.
            lost = psycopg.OperationalError("the connection was lost while the message was handled")
            for attempt in batch.failed([Failure(None, lost)], is_lost=True):
                await self._reject(attempt, is_rolled_back=True)
        session = Session(connection, blocks=self._owner.runners.blocks)
        while batch.taken or not self.stopping.is_set():
            epoch = self._wakeup.epoch(self._handler.queue)
            try:
                await self._exchange(session.cursor)
            except Undecodable as error:
                # The previous batch is committed; this one is put back without the bad messages.
                batch.took([])
                await connection.execute("rollback")
                for bad in error.bad:
                    log_undecodable(logger, bad, self._facts)
                    dead = calls.reject(*self._names, bad.iid, error=bad.reason, dead_letter=True)
                    await run_async(connection, dead)
                continue
            except (psycopg.Error, BusError) as error:
                if not batch.taken:
                    raise
                await self._undo([Failure(None, error)])
                continue
            backoff.reset()
            if batch.taken:
                await self._handle(session)
            elif not self.stopping.is_set():
                await connection.execute("commit")
                await self._wakeup.wait(self._handler.queue, epoch)

    async def _exchange(self, cursor: AsyncCursor[Any]) -> None:
        """Commit the batch and take the next one, except after the last."""
        batch = self.batch
        try:
            await cursor.execute(batch.statement(is_last=self.stopping.is_set()))
        except psycopg.Error as error:
            translated = translate(error, **self._facts)
            if translated is None:
                raise
            raise translated from error
        messages: list[Message] = []
        xid = record = None
        now = batch.taken_at
        while True:
            column = cursor.description[0].name if cursor.description else None
            if column == "id":
                messages = self._read(await fetch_async(cursor))
            elif column == "xid":
                xid, record, now = (await cursor.fetchall())[0]
            if not cursor.nextset():
                break
        batch.took(messages, xid, record, now)

    async def _handle(self, session: Session) -> None:
        batch = self.batch
        run = self._run = BatchRun(batch, self._owner, session)
        is_quick = self._is_quick and run.width > 1
        # A single runner finishes fast handlers before other runners would have started.
        run.start(1 if is_quick else min(run.width, len(batch.taken)))
        if is_quick and not await run.wait(QUICK_SECONDS):
            run.start(run.width - 1)
        if not await run.wait(SLOW_SECONDS):
            self._owner.note(run, SLOW_SECONDS, has_ended=False)
        await run.wait()
        failures = batch.failures
        if not failures:
            try:
                await self._send(run.answers)
                for each in run.rejected:
                    await self._reject(each)
            except (psycopg.Error, BusError) as error:
                failures = [Failure(None, error)]
        if failures:
            await self._undo(failures, run.answers)
        else:
            batch, seconds = self.batch, time.monotonic() - run.began
            self._owner.measures.add("batch", (len(batch.taken),))
            done: Sequence[Message] = batch.done
            if run.rejected:
                rejected = {each.message.id for each in run.rejected if each.message is not None}
                done = [each for each in done if each.id not in rejected]
            self._owner.measures.handled(done, batch.taken_at, batch.seconds)
            self._is_quick = seconds * run.width < QUICK_HANDLER_SECONDS * len(batch.taken)
            self._owner.note(run, seconds, has_ended=True)
            batch.handled(seconds, run.width)

    async def _undo(
        self, failures: list[Failure], answers: Sequence[tuple[Message, object]] = ()
    ) -> None:
        """Roll the batch back, and delay the redelivery of the failed messages."""
        batch, connection, error = self.batch, self._connection, failures[0].error
        if connection.closed:
            raise psycopg.OperationalError("the connection was lost") from error
        is_kept = connection.info.transaction_status == TransactionStatus.INTRANS and any(
            isinstance(each.error, TransactionOwned) for each in failures
        )
        if not is_kept:
            await connection.execute("rollback")
        if await run_async(connection, was_committed(batch.xid)):
            if is_kept:
                # Commit the work that the handler did after its own commit.
                await connection.execute("commit")
            await self._send(answers)
            batch.done += [
                each.message
                for each in failures
                if each.message is not None and isinstance(each.error, TransactionOwned)
            ]
            await self._give_back_rest(error)
            return
        if is_kept:
            await connection.execute("rollback")
        attempts = batch.failed(failures)
        if not attempts:
            logger.info("transaction_repeated", extra={**self._facts, "reason": str(error).strip()})
        for attempt in attempts:
            await self._reject(attempt, is_rolled_back=True)

    async def _send(self, answers: Sequence[tuple[Message, object]]) -> None:
        if answers:
            asked, given = zip(*answers, strict=True)
            call = request.reply_many(asked, self._owner.payload, given)
            await run_async(self._connection, call)

    async def _reject(self, failure: Failure, *, is_rolled_back: bool = False) -> None:
        """Give a message back after a failed attempt, in the transaction that took it or later."""
        message = failure.message
        if message is None:
            logger.warning("commit_failed", extra=self._facts, exc_info=failure.error)
            return
        verdict = judge(failure.error)
        log_verdict(logger, self._handler, message, verdict, failure.error)
        if verdict.is_failure:
            self._owner.measures.add("failed", (failure.seconds,))
        if is_rolled_back:
            call = calls.reject(*self._names, message.iid, **verdict.given())
        else:
            back = calls.give_back(message, self._handler.consumer, **verdict.given())
            call = back.build(self._owner.payload)
        await run_async(self._connection, call)

    async def _give_back_rest(self, error: BaseException) -> None:
        """Give back messages that a handler's commit consumed before they were handled.

        Runs as one transaction, so that a worker that crashes in the meantime loses few messages.
        """
        batch, connection = self.batch, self._connection
        if rest := batch.rest():
            facts = {**self._facts, "unhandled": [message.iid for message in rest]}
            logger.error("handler_committed", extra=facts, exc_info=error)
            reason = "a handler committed the transaction that took this message"
            async with connection.transaction():
                await connection.execute(RESTORE_RECORD, (batch.record,))
                for message in rest:
                    back = calls.give_back(message, self._handler.consumer, timedelta(0), reason)
                    await run_async(connection, back.build(self._owner.payload))
        else:
            logger.warning("handler_committed", extra=self._facts, exc_info=error)
        batch.committed()

    def request_stop(self) -> None:
        """Ask the loop to commit its batch and end, without waiting for it."""
        super().request_stop()
        self._wakeup.wake((self._handler.queue,))

    def abandon(self) -> None:
        """Give the batch back although handlers are still running after the grace time.

        The server rolls back when the connection is cut; a handler in a thread fails at its next
        statement, one in a task is cancelled.
        """
        if self._run is not None:
            self._run.is_abandoned = True
            run = self._run
            self._owner.runners.cancel(lambda each: each is run)
        if self._connection is not None:
            cut(self._connection)
        self.cancel()
