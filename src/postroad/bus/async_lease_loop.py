"""Lease mode in an event loop: lease ahead, handle, ack in batches; a holder keeps the leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from postroad import trace
from postroad.bus.async_client import AsyncBus
from postroad.bus.async_wakeup import AsyncWakeup
from postroad.bus.errors import InvalidArgument, LeaseLost
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.request import asks
from postroad.bus.runners import AsyncRunners
from postroad.bus.worker import (
    MAX_CONFLICTS,
    Handler,
    HeldMessage,
    WorkerSettings,
    hold,
    is_conflict,
    judge,
    log_verdict,
)
from postroad.lease.async_holder import AsyncHolder
from postroad.lease.keeper import Keeper, lost_tokens
from postroad.service import AutoResetEvent, Service

logger = logging.getLogger(__name__)

Held = dict[int, HeldMessage]


class AsyncLeaseLoop(Service):
    """Leases messages for one handler and runs up to its concurrency at once."""

    def __init__(
        self, bus: AsyncBus, handler: Handler, wakeup: AsyncWakeup, settings: WorkerSettings
    ) -> None:
        super().__init__(f"{handler.queue} by {handler.consumer}")
        self._bus = bus
        self._handler = handler
        self._wakeup = wakeup
        self._facts = handler.facts
        self._unfinished: Held = {}
        self._changed = AutoResetEvent()
        self._is_abandoned = False
        keeper: Keeper[int, HeldMessage] = Keeper(
            handler.ttl, ack_delay=settings.ack_delay, ack_batch=settings.ack_batch
        )
        self._holder = AsyncHolder(
            keeper, self._extend, self._lose, transient=SURVIVABLE, ack=self._ack
        )
        self._runners = AsyncRunners(self.name, handler.concurrency, self._handle, self._ended)

    async def run(self) -> None:
        """Serve until stopped, then until all leased messages are finished or given back."""
        await self.supervise(self._holder)
        self._runners.start()
        self.announce_ready()
        try:
            await self._fetch()
            while self._unfinished and not self._is_abandoned:
                await self._changed.wait()
        finally:
            await self._give_back()
            await self._runners.stop()
            await self.stop_supervised()

    def request_stop(self) -> None:
        """Ask the loop to lease no more and to finish what is leased, without waiting for it."""
        super().request_stop()
        self._changed.set()
        self._wakeup.wake((self._handler.queue,))

    def abandon(self) -> None:
        """Give back what is not finished: its handlers are cancelled or notified."""
        self._is_abandoned = True
        self.request_stop()

    def fail(self, error: BaseException) -> None:
        """End with this error; without its holder the loop cannot finish what is leased."""
        self._is_abandoned = True
        super().fail(error)

    async def _fetch(self) -> None:
        handler = self._handler
        backoff = Backoff()
        while True:
            epoch = self._wakeup.epoch(handler.queue)
            if self.stopping.is_set():
                return
            if len(self._unfinished) > handler.concurrency + handler.prefetch // 2:
                await self._changed.wait()
                continue
            amount = handler.concurrency + handler.prefetch - len(self._unfinished)
            since = self._holder.now()
            try:
                leased = await self._bus.lease(handler.queue, handler.consumer, amount, handler.ttl)
            except SURVIVABLE as failure:
                logger.warning(
                    "worker_interrupted", extra={**self._facts, "reason": str(failure).strip()}
                )
                await self.pause(backoff.next_seconds())
                continue
            backoff.reset()
            held = {message.token: hold(message) for message in leased}
            self._unfinished.update(held)
            self._holder.claim(held.items(), since)
            for message in held.values():
                self._runners.submit(message)
            if not leased:
                await self._wakeup.wait(handler.queue, epoch)

    def _ended(self, message: HeldMessage, error: BaseException | None) -> None:
        self._unfinished.pop(message.token, None)
        self._changed.set()
        if error is not None:
            self.fail(error)

    async def _handle(self, message: HeldMessage) -> None:
        if message.lost.is_set():
            return
        try:
            answer = await self._answer(message)
            if answer is not None and asks(message):
                await self._bus.reply(message, answer)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the message has failed
            # Also `sys.exit()` and a handler that awaits a cancelled task are failed attempts; this
            # loop cancels handlers of lost messages only.
            if not message.lost.is_set():
                await self._fail(message, error)
        else:
            if not message.lost.is_set():
                self._holder.finish(message.token)

    async def _answer(self, message: HeldMessage) -> object:
        """Call the handler, again after a deadlock or a serialization failure."""
        trace.follow(message)
        for _ in range(MAX_CONFLICTS):
            try:
                return await self._handler.function(message)
            except Exception as error:
                if not is_conflict(error):
                    raise
                logger.info("handler_repeated", extra={**self._facts, "iid": message.iid})
        return await self._handler.function(message)

    async def _fail(self, message: HeldMessage, error: BaseException) -> None:
        verdict, backoff = judge(error), Backoff()
        log_verdict(logger, self._handler, message, verdict, error)
        while not message.lost.is_set():
            try:
                await self._bus.nack(message, **verdict.given())
            except LeaseLost:
                logger.warning("lease_lost", extra={**self._facts, "iid": message.iid})
            except SURVIVABLE as failure:
                logger.warning("nack_failed", extra={"reason": str(failure).strip()})
                if isinstance(failure, InvalidArgument):
                    # The delay that the handler asked for is impossible: the backoff instead.
                    verdict = replace(verdict, delay=None)
                await asyncio.sleep(backoff.next_seconds())
                continue
            break
        self._holder.release(message.token)

    async def _give_back(self) -> None:
        """Nack what is not finished; without a database the leases expire."""
        unfinished = list(self._unfinished.values())
        held = [each for each in unfinished if self._holder.release(each.token) is not None]
        for message in unfinished:
            self._lose(message)
        try:
            for message in held:
                await self._bus.nack(message, timedelta(0), "the worker was stopped")
        except SURVIVABLE as failure:
            logger.warning("nack_failed", extra={"reason": str(failure).strip()})

    async def _extend(self, held: Held) -> Iterable[int]:
        lost = await self._bus.extend_many(list(held.values()), self._handler.ttl)
        return lost_tokens(((each.iid, each.token) for each in held.values()), lost)

    async def _ack(self, held: Held) -> None:
        for iid in await self._bus.ack_many(list(held.values())):
            logger.warning("lease_lost", extra={**self._facts, "iid": iid})

    def _lose(self, message: HeldMessage) -> None:
        message.lost.set()
        self._runners.cancel(message)
