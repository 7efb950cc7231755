"""Requests in an event loop: many requests over one connection, in batches.

One task owns the connection. It posts the requests made since its last round, takes all answers
that have arrived, and resolves their futures. Because it does one after the other, no answer can
be received before its request is registered. While answers are due it polls at growing intervals;
otherwise it sleeps until the next request.
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
from postroad.bus.hstore import Hstore
from postroad.bus.payload import Payload
from postroad.bus.reconnect import SURVIVABLE
from postroad.bus.request import Reply
from postroad.bus.session import is_disconnecting, parameters, run_async

logger = logging.getLogger(__name__)

MIN_POLL_SECONDS = 0.0005
MAX_POLL_SECONDS = 0.025
POLL_GROWTH = 1.15


@dataclass(eq=False, slots=True)
class Question:
    """A request in progress and the future of its answer."""

    queue: str
    payload: Payload
    data: object
    headers: Hstore | None
    properties: Hstore | None
    timeout: timedelta
    answer: asyncio.Future[Reply]
    iid: str | None = field(default=None)


class AsyncRequester:
    """Sends requests over one connection, which it opens with the first one."""

    def __init__(self, dsn: str, *, notify: bool) -> None:
        self._dsn = dsn
        self._notifies = notify
        self._asked: list[Question] = []
        self._open: dict[str, Question] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def ask(
        self,
        queue: str,
        payload: Payload,
        data: object,
        headers: Hstore | None,
        properties: Hstore | None,
        timeout: timedelta,
    ) -> Reply:
        """Post a request with the next batch and wait for its answer. Raises RequestTimedOut."""
        seconds = request.check_timeout(timeout)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        question = Question(queue, payload, data, headers, properties, timeout, answer)
        # Refuse an invalid request here, before it shares a batch with others.
        request.ask_many(queue, payload, [data], [headers], [properties], timeout, "")
        self._asked.append(question)
        self._woken.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="postroad-requester")
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise request.timed_out(queue, question.iid, timeout) from None
        finally:
            self._open.pop(question.iid or "", None)

    async def close(self) -> None:
        """Cancel the requests in progress and close the connection; a second call does nothing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for question in self._give_up():
            gone = request.timed_out(question.queue, question.iid, question.timeout)
            self._fail([question], gone)

    async def _work(self) -> None:
        while self._asked:
            connection: AsyncConnection[Any] | None = None
            try:
                connection = await AsyncConnection.connect(
                    self._dsn, **parameters(self._dsn, is_pooled=False)
                )
                await connection.execute(request.PREPARE_SESSION)
                reply_to = await run_async(connection, request.reply_queue())
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

    def _give_up(self) -> list[Question]:
        questions = [*self._open.values(), *self._asked]
        self._open, self._asked = {}, []
        return questions

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
        for (queue, payload, timeout), group in groupby(
            sorted(asked, key=lambda each: (each.queue, each.timeout)),
            lambda each: (each.queue, each.payload, each.timeout),
        ):
            # Requests whose callers have stopped waiting are not sent.
            questions = [each for each in group if not each.answer.done()]
            if not questions:
                continue
            call = request.ask_many(
                queue,
                payload,
                [each.data for each in questions],
                [each.headers for each in questions],
                [each.properties for each in questions],
                timeout,
                reply_to,
                # One notification per batch, and batches grow with the load.
                notify=self._notifies,
            )
            try:
                iids = await run_async(connection, call)
            except BusError as refusal:
                self._fail(questions, refusal)
                continue
            except SURVIVABLE as failure:
                self._fail(asked, failure)
                raise
            for question, iid in zip(questions, iids, strict=True):
                question.iid = iid
                self._open[iid] = question

    async def _receive(self, connection: AsyncConnection[Any]) -> bool:
        try:
            found = await run_async(connection, request.replies(CHUNK_MESSAGES, timedelta(0)))
        except Undecodable as error:
            found, undecodable = request.readable(error)
            questions = (self._open.pop(each or "", None) for each in undecodable)
            self._fail([each for each in questions if each is not None], error)
        for reply in found:
            question = self._open.pop(reply.correlation, None)
            if question is not None and not question.answer.done():
                question.answer.set_result(reply)
        return bool(found)

    def _fail(self, questions: list[Question], failure: Exception) -> None:
        for question in questions:
            if not question.answer.done():
                question.answer.set_exception(failure)
