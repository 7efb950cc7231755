"""Lease mode: lease ahead, handle, ack in batches; a holder keeps the leases."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from postroad import trace
from postroad.bus import calls
from postroad.bus.batch import FIRST_BATCH_SIZE, BatchSize
from postroad.bus.client import AsyncBus
from postroad.bus.errors import InvalidArgument, LeaseLost
from postroad.bus.handlers import (
    MAX_CONFLICTS,
    Handler,
    HeldMessage,
    MessageBatch,
    WorkerSettings,
    is_conflict,
    judge,
    log_verdict,
)
from postroad.bus.measures import Measures
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.request import asks
from postroad.bus.runners import Runners
from postroad.bus.spans import handled
from postroad.bus.wakeup import AsyncWakeup
from postroad.lease.holder import Holder
from postroad.lease.keeper import Keeper, lost_tokens
from postroad.service import Service

logger = logging.getLogger(__name__)

# A message that was leased longer ago and not begun is given back, as another worker may be idle.
MAX_AHEAD_SECONDS = 1.0

Held = dict[int, HeldMessage]


class LeaseLoop(Service):
    """Leases messages for one handler and runs up to its concurrency at the same time."""

    def __init__(
        self,
        bus: AsyncBus,
        handler: Handler,
        wakeup: AsyncWakeup,
        settings: WorkerSettings,
        runners: type[Runners[Any]],
    ) -> None:
        super().__init__(f"{handler.queue} by {handler.consumer}")
        self._bus = bus
        self._handler = self.handler = handler
        self._wakeup = wakeup
        self._facts = handler.facts
        self._unfinished: Held = {}
        self._unstarted: dict[int, tuple[MessageBatch[HeldMessage], float]] = {}
        self._is_abandoned = False
        keeper: Keeper[int, HeldMessage] = Keeper(
            handler.ttl, ack_delay=settings.ack_delay, ack_batch=settings.ack_batch
        )
        self._holder = Holder(keeper, self._extend, self._lose, transient=SURVIVABLE, ack=self._ack)
        self._awaits = not runners.blocks
        self._in_flight = handler.concurrency * (handler.batch or 1)
        self._runners: Runners[MessageBatch[HeldMessage]] = runners(
            self.name, handler.concurrency, self._handle, self._ended
        )
        # Replies and failures of handlers that have ended.
        self._reports: dict[int, asyncio.Task[None] | None] = {}
        self._size = BatchSize(handler.prefetch, handler.batch or FIRST_BATCH_SIZE, least=0)
        self.measures = Measures(handler.queue, handler.consumer)
        self._function = handled(handler.function, handler.queue, handler.consumer)

    async def run(self) -> None:
        """Serve until stopped, then until all leased messages are finished or given back."""
        self._event_loop = asyncio.get_running_loop()
        await self.supervise(self._holder)
        self.announce_ready()
        try:
            await self._fetch()
            await self._release(math.inf)
            while self._unfinished and not self._is_abandoned:
                await self.changed.wait()
        finally:
            await self._give_back()
            await self._runners.stop()
            for report in self._reports.values():
                if report is not None:
                    report.cancel()
            await self.stop_supervised()

    def request_stop(self) -> None:
        """Ask the loop to stop leasing and end its handlers, without waiting for it."""
        super().request_stop()
        self._wakeup.wake((self._handler.queue,))

    def held(self) -> list[str]:
        """Return the iids of the messages that it has leased."""
        return [message.iid for message in list(self._unfinished.values())]

    def abandon(self) -> None:
        """Give unfinished messages back: their handlers are cancelled or notified."""
        self._is_abandoned = True
        self.request_stop()

    def fail(self, error: BaseException) -> None:
        """End with this error; without its holder the loop cannot finish leased messages."""
        self._is_abandoned = True
        super().fail(error)

    async def _fetch(self) -> None:
        handler, size = self._handler, self._size
        backoff = Backoff()
        began, ahead = self._holder.now(), 0
        while True:
            await self._release(self._holder.now() - MAX_AHEAD_SECONDS)
            epoch = self._wakeup.epoch(handler.queue)
            if self.stopping.is_set():
                return
            if len(self._unfinished) > self._refill_at:
                await self.changed.wait(MAX_AHEAD_SECONDS)
                continue
            since = self._holder.now()
            # Lease ahead as many messages as are handled in the time of a batch.
            size.adjust(ahead - len(self._unfinished), since - began)
            # At least one: the size may have shrunk below what is leased already.
            amount = max(1, self._in_flight + size.amount - len(self._unfinished))
            try:
                names = handler.queue, handler.consumer
                leased = await self._bus._run(
                    calls.leased(HeldMessage, *names, amount, handler.ttl)
                )
            except SURVIVABLE as failure:
                facts = {**self._facts, "reason": str(failure).strip()}
                logger.warning("worker_interrupted", extra=facts)
                await self.pause(backoff.next_seconds())
                continue
            backoff.reset()
            if leased:
                self.measures.add("batch", (len(leased),))
            held = {message.token: message for message in leased}
            self._unfinished.update(held)
            self._holder.claim(held.items(), since)
            began, ahead = since, len(self._unfinished)
            step = handler.batch or 1
            for first in range(0, len(leased), step):
                call = MessageBatch(leased[first : first + step])
                self._unstarted[call[0].token] = call, since
                self._runners.submit(call)
            if not leased:
                await self._wakeup.wait(handler.queue, epoch)
                began, ahead = self._holder.now(), len(self._unfinished)

    @property
    def _refill_at(self) -> int:
        return self._in_flight + (self._size.amount + 3) // 4 - 1

    async def _release(self, before: float) -> None:
        """Give back messages that were leased before that time and have not begun."""
        late = Held()
        # Runners that begin take their calls from here, too.
        for token in list(self._unstarted):
            call, since = self._unstarted.get(token, ([], math.inf))
            if since >= before:
                break
            if self._unstarted.pop(token, None) is not None:
                late.update((each.token, each) for each in call)
        held = [each for each in late.values() if self._holder.release(each.token) is not None]
        for token in late:
            del self._unfinished[token]
        if held:
            # Nothing is leased ahead until a handler has ended.
            self._size.isolate()
            try:
                await self._bus.release_many(held)
            except SURVIVABLE as failure:
                logger.warning("release_failed", extra={"reason": str(failure).strip()})

    def _ended(self, messages: MessageBatch[HeldMessage], error: BaseException | None) -> None:
        """Release messages unless their reply or failure is being reported; from any thread."""
        # A task may be cancelled before it begins.
        self._unstarted.pop(messages[0].token, None)
        for message in messages:
            if message.token not in self._reports:
                self._forget(message)
        if error is not None:
            self.fail(error)

    def _forget(self, message: HeldMessage) -> None:
        self._unfinished.pop(message.token, None)
        if len(self._unfinished) <= self._refill_at:
            self.changed.set()

    async def _handle(self, messages: MessageBatch[HeldMessage]) -> None:
        """Call the handler, unless the messages were given back; in a task or a thread."""
        if self._unstarted.pop(messages[0].token, None) is None:
            return
        held = MessageBatch(message for message in messages if not message.is_lost)
        if not held:
            return
        answer: object = None
        failure: BaseException | None = None
        began = time.perf_counter()
        try:
            answer = await self._answer(held)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the messages have failed
            # `sys.exit()` and awaiting a cancelled task count as failed attempts as well: this
            # loop cancels only handlers of lost messages.
            failure = error
        seconds = time.perf_counter() - began
        for message in held:
            self._conclude(message, answer, held.failures.get(message.id, failure), seconds)

    async def _answer(self, messages: MessageBatch[HeldMessage]) -> object:
        """Call the handler, again after a deadlock or a serialization failure."""
        argument: object = messages
        if self._handler.batch is None:
            argument = messages[0]
            trace.follow(messages[0])
        for conflicts in itertools.count():
            try:
                answer = self._function(argument)
                return await answer if self._awaits else answer
            except Exception as error:
                if conflicts == MAX_CONFLICTS or not is_conflict(error):
                    raise
                logger.info("handler_repeated", extra={**self._facts, "iid": messages[0].iid})
        raise AssertionError

    def _conclude(
        self, message: HeldMessage, answer: object, failure: BaseException | None, seconds: float
    ) -> None:
        if failure is None:
            taken_at = message.leased_until - self._handler.ttl
            self.measures.handled((message,), taken_at, (seconds,))
        if message.is_lost:
            return
        if failure is not None and judge(failure).is_failure:
            self.measures.add("failed", (seconds,))
        is_asked = answer is not None and self._handler.batch is None and asks(message)
        if failure is None and not is_asked:
            self._holder.finish(message.token)
            return
        self._reports[message.token] = None

        def begin() -> None:
            report = self._report(message, answer, failure)
            self._reports[message.token] = asyncio.create_task(report)

        self._event_loop.call_soon_threadsafe(begin)

    async def _report(
        self, message: HeldMessage, answer: object, failure: BaseException | None
    ) -> None:
        """Send the reply of a handler that returned, or nack after its failure."""
        try:
            if failure is None:
                try:
                    await self._bus.reply(message, answer)
                    self._holder.finish(message.token)
                except Exception as error:  # noqa: BLE001 - whatever it is, the message has failed
                    failure = error
            if failure is not None:
                await self._fail(message, failure)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            del self._reports[message.token]
            self._forget(message)

    async def _fail(self, message: HeldMessage, error: BaseException) -> None:
        verdict, backoff = judge(error), Backoff()
        log_verdict(logger, self._handler, message, verdict, error)
        while not message.is_lost:
            try:
                await self._bus.nack(message, **verdict.given())
            except LeaseLost:
                logger.warning("lease_lost", extra={**self._facts, "iid": message.iid})
            except SURVIVABLE as failure:
                logger.warning("nack_failed", extra={"reason": str(failure).strip()})
                if isinstance(failure, InvalidArgument):
                    # The handler's delay is invalid: use the backoff instead.
                    verdict = replace(verdict, delay=None)
                await asyncio.sleep(backoff.next_seconds())
                continue
            break
        self._holder.release(message.token)

    async def _give_back(self) -> None:
        """Nack unfinished messages; if the database is unavailable, the leases expire."""
        unfinished = list(self._unfinished.values())
        held = [each for each in unfinished if self._holder.release(each.token) is not None]
        self._lose(*unfinished)
        try:
            for message in held:
                await self._bus.nack(message, timedelta(0), "the worker was stopped")
        except SURVIVABLE as failure:
            logger.warning("nack_failed", extra={"reason": str(failure).strip()})

    async def _extend(self, held: Held) -> Iterable[int]:
        lost = await self._bus.extend_many(list(held.values()), self._handler.ttl)
        return lost_tokens(((each.iid, each.token) for each in held.values()), lost)

    async def _ack(self, held: Held) -> None:
        # The work is done again after an ack that a crash of the server loses.
        acks = calls.ack_many(list(held.values()), self._handler.consumer).unflushed()
        for iid in await self._bus._run(acks):
            logger.warning("lease_lost", extra={**self._facts, "iid": iid})

    def _lose(self, *messages: HeldMessage) -> None:
        for message in messages:
            message.lost.set()
        self._runners.cancel(lambda held: all(message.is_lost for message in held))
