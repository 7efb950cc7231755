"""Requests: posted, and their answers received.

Many requests share one connection, in batches. One task owns the connection. It
posts the requests made since its last round, takes all answers that have arrived, and resolves
their futures. Because it does one after the other, no answer can be received before its request is
registered. While answers are due it polls at growing intervals; otherwise it sleeps until the next
request.

An answer that arrives after its request timed out is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import Any

from psycopg import AsyncConnection

from postroad.bus import request
from postroad.bus.calls import CHUNK_MESSAGES
from postroad.bus.decoding import Undecodable
from postroad.bus.errors import BusError
from postroad.bus.reconnect import SURVIVABLE
from postroad.bus.request import Question, Reply
from postroad.bus.session import is_disconnecting, run_async
from postroad.postgres.connections import parameters
from postroad.service import Service

logger = logging.getLogger(__name__)

MIN_POLL_SECONDS = 0.0005
MAX_POLL_SECONDS = 0.025
POLL_GROWTH = 1.15


@dataclass(eq=False, slots=True)
class Pending:
    """A request in progress and the future of its answer."""

    question: Question
    answer: asyncio.Future[Reply]
    iid: str | None = field(default=None)


class Requester(Service):
    """Sends requests over one connection, which it opens with the first one."""

    def __init__(self, dsn: str, *, notify: bool) -> None:
        super().__init__("requester")
        self._dsn = dsn
        self._notifies = notify
        self._asked: list[Pending] = []
        self._open: dict[str, Pending] = {}
        self._woken = asyncio.Event()
        self._conversation: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Reply:
        """Post a request with the next batch and wait for its answer. Raises RequestTimedOut."""
        # Refuse an invalid request here, before it shares a batch with others.
        request.ask_many([question], "")
        pending = Pending(question, asyncio.get_running_loop().create_future())
        self._asked.append(pending)
        self._woken.set()
        if self._conversation is None or self._conversation.done():
            self._conversation = asyncio.create_task(self._work(), name="postroad-requester")
        try:
            async with asyncio.timeout(question.timeout.total_seconds()):
                return await pending.answer
        except TimeoutError:
            raise question.timed_out(pending.iid) from None
        finally:
            self._open.pop(pending.iid or "", None)

    async def run(self) -> None:
        """Let requests be made until stopped, and cancel those in progress."""
        self.announce_ready()
        await self.stopping.wait()
        if self._conversation is not None:
            self._conversation.cancel()
            await asyncio.gather(self._conversation, return_exceptions=True)
        for pending in self._give_up():
            self._fail([pending], pending.question.timed_out(pending.iid))

    async def _work(self) -> None:
        while self._asked:
            connection: AsyncConnection[Any] | None = None
            try:
                given = parameters(self._dsn, application_name="postroad bus", autocommit=True)
                connection = await AsyncConnection.connect(self._dsn, **given)
                await connection.execute(request.PREPARE_SESSION)
                reply_to = await run_async(connection, request.REPLY_QUEUE)
                await self._converse(connection, reply_to)
            except Exception as failure:
                # The reply queue ended with its session; the next request opens another.
                logger.warning("requester_interrupted", extra={"reason": str(failure).strip()})
                self._fail(self._give_up(), failure)
                if not isinstance(failure, SURVIVABLE):
                    raise
            finally:
                if connection is not None:
                    await connection.close()

    def _give_up(self) -> list[Pending]:
        pending = [*self._open.values(), *self._asked]
        self._open, self._asked = {}, []
        return pending

    async def _converse(self, connection: AsyncConnection[Any], reply_to: str) -> None:
        interval = MIN_POLL_SECONDS
        while True:
            if self._asked:
                if not self._open and is_disconnecting(connection):
                    return  # the server has closed the connection; a new one is opened
                was_quiet = not self._open
                await self._post(connection, reply_to)
                interval = MIN_POLL_SECONDS
            else:
                was_quiet = False
            # Requests posted just now cannot have been answered yet.
            if self._open and not was_quiet and await self._receive(connection):
                interval = MIN_POLL_SECONDS
                continue
            self._woken.clear()
            if self._asked:
                continue
            try:
                async with asyncio.timeout(interval if self._open else None):
                    await self._woken.wait()
            except TimeoutError:
                interval = min(interval * POLL_GROWTH, MAX_POLL_SECONDS)

    async def _post(self, connection: AsyncConnection[Any], reply_to: str) -> None:
        asked, self._asked = self._asked[:CHUNK_MESSAGES], self._asked[CHUNK_MESSAGES:]
        # Requests whose callers have stopped waiting are not sent.
        waiting = [each for each in asked if not each.answer.done()]

        def shape(pending: Pending) -> tuple[str, str, timedelta]:
            question = pending.question
            return question.queue, question.payload, question.timeout

        for _, group in groupby(sorted(waiting, key=shape), shape):
            batch = list(group)
            # One notification per batch, and batches grow with the load.
            questions = [each.question for each in batch]
            call = request.ask_many(questions, reply_to, notify=self._notifies)
            try:
                iids = await run_async(connection, call)
            except BusError as refusal:
                self._fail(batch, refusal)
                continue
            except SURVIVABLE as failure:
                self._fail(asked, failure)
                raise
            for pending, iid in zip(batch, iids, strict=True):
                pending.iid = iid
                self._open[iid] = pending

    async def _receive(self, connection: AsyncConnection[Any]) -> bool:
        try:
            found = await run_async(connection, request.REPLIES)
        except Undecodable as error:
            found = request.read_replies(error.rows)
            failed = [self._open.pop(bad.texts["correlation"] or "", None) for bad in error.bad]
            self._fail([each for each in failed if each is not None], error)
        for reply in found:
            pending = self._open.pop(reply.correlation, None)
            if pending is not None and not pending.answer.done():
                pending.answer.set_result(reply)
        return bool(found)

    def _fail(self, failed: list[Pending], failure: Exception) -> None:
        for pending in failed:
            if not pending.answer.done():
                pending.answer.set_exception(failure)
