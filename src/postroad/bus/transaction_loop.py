# Written by `make generate` from bus/async_transaction_loop.py; edit that file.
"""Transaction mode in threads: take, handle, and commit together with the next take."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import Cursor
from psycopg.rows import tuple_row

from postroad import trace
from postroad.bus import calls, rows
from postroad.bus.batch import (
    RESTORE_RECORD,
    Answers,
    Batch,
    TransactionConnection,
    check_open,
    cut,
    was_committed,
)
from postroad.bus.decoding import Undecodable, log_undecodable
from postroad.bus.errors import BusError, TransactionOwned, translate
from postroad.bus.message import Message
from postroad.bus.payload import Payload
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.session import adapt, fetch, parameters, run
from postroad.bus.wakeup import Wakeup
from postroad.bus.worker import Handler, WorkerSettings, is_conflict, judge, log_verdict
from postroad.service import ThreadService

logger = logging.getLogger(__name__)


class TransactionLoop(ThreadService):
    """One connection that serves one handler; a handler's concurrency is a number of these."""

    def __init__(
        self,
        dsn: str,
        handler: Handler,
        payload: Payload,
        wakeup: Wakeup,
        settings: WorkerSettings,
    ) -> None:
        super().__init__(f"{handler.queue} by {handler.consumer}")
        self._dsn = dsn
        self._handler = handler
        self._payload = payload
        self._read = rows.messages(payload)
        self._wakeup = wakeup
        self._parameters = parameters(
            dsn, is_pooled=not settings.listen, application_name="postroad worker"
        )
        self._names = (handler.queue, handler.consumer)
        self._facts = handler.facts
        self._connection: TransactionConnection | None = None
        self._batch = Batch(handler)

    def run(self) -> None:
        """Serve until stopped, whatever happens to the database."""
        backoff = Backoff()
        while not self.stopping.is_set():
            connection = None
            try:
                connection = TransactionConnection.connect(self._dsn, **self._parameters)
                self._connection = connection
                self.announce_ready()
                self._serve(connection, backoff)
            except SURVIVABLE as failure:
                logger.warning(
                    "worker_interrupted", extra={**self._facts, "reason": str(failure).strip()}
                )
                self.pause(backoff.next_seconds())
            finally:
                # Closing is what gives messages back, also when the grace time is over.
                if connection is not None:
                    connection.close()

    def _serve(self, connection: TransactionConnection, backoff: Backoff) -> None:
        batch = self._batch
        if batch.taken:
            # Back in the queue. Whether a handler had committed them is unknown here: after a
            # crash of the server the id of their transaction may be another one's.
            batch.failed(None)
        cursor = Cursor(connection, row_factory=tuple_row)
        adapt(cursor)
        while batch.taken or not self.stopping.is_set():
            epoch = self._wakeup.epoch(self._handler.queue)
            try:
                self._exchange(cursor, batch)
            except Undecodable as error:
                # The batch before was committed; this one is put back without the bad messages.
                batch.took([])
                connection.execute("rollback")
                for bad in error.bad:
                    log_undecodable(logger, bad, self._facts)
                    dead = calls.reject(*self._names, bad.iid, error=bad.reason, dead_letter=True)
                    run(connection, dead)
                continue
            except (psycopg.Error, BusError) as error:
                if not batch.taken:
                    raise
                self._undo(connection, batch, None, error)
                continue
            backoff.reset()
            if batch.taken:
                self._handle(connection, batch)
            elif not self.stopping.is_set():
                cursor.execute("commit")
                self._wakeup.wait(self._handler.queue, epoch)

    def _exchange(self, cursor: Cursor[Any], batch: Batch) -> None:
        """Commit the batch and take the next one, except after the last."""
        try:
            cursor.execute(batch.statement(is_last=self.stopping.is_set()))
        except psycopg.Error as error:
            translated = translate(error, **self._facts)
            if translated is None:
                raise
            raise translated from error
        messages: list[Message] = []
        xid = record = None
        while True:
            column = cursor.description[0].name if cursor.description else None
            if column == "id":
                messages = self._read(fetch(cursor))
            elif column == "xid":
                xid, record = (cursor.fetchall())[0]
            if not cursor.nextset():
                break
        batch.took(messages, xid, record)

    def _handle(self, connection: TransactionConnection, batch: Batch) -> None:
        function, pgconn = self._handler.function, connection.pgconn
        answers = Answers(self._payload)
        began = time.monotonic()
        for place, message in enumerate(batch.taken):
            batch.place = place
            try:
                trace.follow(message)
                answers.add(message, function(message, connection))
                check_open(pgconn.transaction_status)
            except BaseException as error:
                if self.is_cancelled():
                    raise
                # Also `sys.exit()` and a handler that awaits a cancelled task are failed attempts.
                self._undo(connection, batch, message, error, answers)
                return
        if answers.asked:
            try:
                run(connection, answers.call())
            except (psycopg.Error, BusError) as error:
                self._undo(connection, batch, None, error)
                return
        batch.handled(time.monotonic() - began)

    def _undo(
        self,
        connection: TransactionConnection,
        batch: Batch,
        message: Message | None,
        error: BaseException,
        answers: Answers | None = None,
    ) -> None:
        """Roll the batch back, and keep the message at fault from being delivered again at once."""
        if connection.closed:
            raise psycopg.OperationalError("the connection was lost") from error
        connection.execute("rollback")
        if run(connection, was_committed(batch.xid)):
            if answers is not None and answers.asked:
                run(connection, answers.call())
            if isinstance(error, TransactionOwned):
                batch.place += 1
            self._give_back_rest(connection, batch, error)
            return
        if is_conflict(error) and batch.conflicted():
            logger.info("transaction_repeated", extra={**self._facts, "reason": str(error).strip()})
            return
        failed = batch.failed(message)
        if failed is None:
            logger.warning("commit_failed", extra=self._facts, exc_info=error)
            return
        verdict = judge(error)
        log_verdict(logger, self._handler, failed, verdict, error)
        run(connection, calls.reject(*self._names, failed.iid, **verdict.given()))

    def _give_back_rest(
        self, connection: TransactionConnection, batch: Batch, error: BaseException | None
    ) -> None:
        """Give messages back that a handler's commit consumed before they were handled.

        All in one transaction, so that a worker that dies meanwhile loses as few as possible.
        """
        rest = batch.taken[batch.place :]
        if rest:
            facts = {**self._facts, "unhandled": [message.iid for message in rest]}
            logger.error("handler_committed", extra=facts, exc_info=error)
            reason = "a handler committed the transaction that took this message"
            with connection.transaction():
                connection.execute(RESTORE_RECORD, (batch.record,))
                for message in rest:
                    back = calls.give_back(message, self._handler.consumer, timedelta(0), reason)
                    run(connection, back.build(self._payload))
        elif error is not None:
            logger.warning("handler_committed", extra=self._facts, exc_info=error)
        batch.committed()

    def request_stop(self) -> None:
        """Ask the loop to commit its batch and end, without waiting for it."""
        super().request_stop()
        self._wakeup.wake((self._handler.queue,))

    def abandon(self) -> None:
        """Give the batch back under a handler that outlived the grace time.

        The server rolls back when the connection is cut; a handler in a thread fails with its next
        statement, one in a task is cancelled.
        """
        if self._connection is not None:
            cut(self._connection)
        self.cancel()
