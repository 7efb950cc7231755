# Written by `make generate` from bus/async_lease_loop.py; edit that file.
"""Lease mode in threads: lease ahead, handle, ack in batches; a holder keeps the leases."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from postroad import trace
from postroad.bus.client import Bus
from postroad.bus.errors import InvalidArgument, LeaseLost
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.request import asks
from postroad.bus.runners import Runners
from postroad.bus.wakeup import Wakeup
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
from postroad.lease.holder import Holder
from postroad.lease.keeper import Keeper, lost_tokens
from postroad.service import ThreadAutoResetEvent, ThreadService

logger = logging.getLogger(__name__)

Held = dict[int, HeldMessage]


class LeaseLoop(ThreadService):
    """Leases messages for one handler and runs up to its concurrency at once."""

    def __init__(
        self, bus: Bus, handler: Handler, wakeup: Wakeup, settings: WorkerSettings
    ) -> None:
        super().__init__(f"{handler.queue} by {handler.consumer}")
        self._bus = bus
        self._handler = handler
        self._wakeup = wakeup
        self._facts = handler.facts
        self._unfinished: Held = {}
        self._changed = ThreadAutoResetEvent()
        self._is_abandoned = False
        keeper: Keeper[int, HeldMessage] = Keeper(
            handler.ttl, ack_delay=settings.ack_delay, ack_batch=settings.ack_batch
        )
        self._holder = Holder(keeper, self._extend, self._lose, transient=SURVIVABLE, ack=self._ack)
        self._runners = Runners(self.name, handler.concurrency, self._handle, self._ended)

    def run(self) -> None:
        """Serve until stopped, then until all leased messages are finished or given back."""
        self.supervise(self._holder)
        self._runners.start()
        self.announce_ready()
        try:
            self._fetch()
            while self._unfinished and not self._is_abandoned:
                self._changed.wait()
        finally:
            self._give_back()
            self._runners.stop()
            self.stop_supervised()

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

    def _fetch(self) -> None:
        handler = self._handler
        backoff = Backoff()
        while True:
            epoch = self._wakeup.epoch(handler.queue)
            if self.stopping.is_set():
                return
            if len(self._unfinished) > handler.concurrency + handler.prefetch // 2:
                self._changed.wait()
                continue
            amount = handler.concurrency + handler.prefetch - len(self._unfinished)
            since = self._holder.now()
            try:
                leased = self._bus.lease(handler.queue, handler.consumer, amount, handler.ttl)
            except SURVIVABLE as failure:
                logger.warning(
                    "worker_interrupted", extra={**self._facts, "reason": str(failure).strip()}
                )
                self.pause(backoff.next_seconds())
                continue
            backoff.reset()
            held = {message.token: hold(message) for message in leased}
            self._unfinished.update(held)
            self._holder.claim(held.items(), since)
            for message in held.values():
                self._runners.submit(message)
            if not leased:
                self._wakeup.wait(handler.queue, epoch)

    def _ended(self, message: HeldMessage, error: BaseException | None) -> None:
        self._unfinished.pop(message.token, None)
        self._changed.set()
        if error is not None:
            self.fail(error)

    def _handle(self, message: HeldMessage) -> None:
        if message.lost.is_set():
            return
        try:
            answer = self._answer(message)
            if answer is not None and asks(message):
                self._bus.reply(message, answer)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the message has failed
            # Also `sys.exit()` and a handler that awaits a cancelled task are failed attempts; this
            # loop cancels handlers of lost messages only.
            if not message.lost.is_set():
                self._fail(message, error)
        else:
            if not message.lost.is_set():
                self._holder.finish(message.token)

    def _answer(self, message: HeldMessage) -> object:
        """Call the handler, again after a deadlock or a serialization failure."""
        trace.follow(message)
        for _ in range(MAX_CONFLICTS):
            try:
                return self._handler.function(message)
            except Exception as error:
                if not is_conflict(error):
                    raise
                logger.info("handler_repeated", extra={**self._facts, "iid": message.iid})
        return self._handler.function(message)

    def _fail(self, message: HeldMessage, error: BaseException) -> None:
        verdict, backoff = judge(error), Backoff()
        log_verdict(logger, self._handler, message, verdict, error)
        while not message.lost.is_set():
            try:
                self._bus.nack(message, **verdict.given())
            except LeaseLost:
                logger.warning("lease_lost", extra={**self._facts, "iid": message.iid})
            except SURVIVABLE as failure:
                logger.warning("nack_failed", extra={"reason": str(failure).strip()})
                if isinstance(failure, InvalidArgument):
                    # The delay that the handler asked for is impossible: the backoff instead.
                    verdict = replace(verdict, delay=None)
                time.sleep(backoff.next_seconds())
                continue
            break
        self._holder.release(message.token)

    def _give_back(self) -> None:
        """Nack what is not finished; without a database the leases expire."""
        unfinished = list(self._unfinished.values())
        held = [each for each in unfinished if self._holder.release(each.token) is not None]
        for message in unfinished:
            self._lose(message)
        try:
            for message in held:
                self._bus.nack(message, timedelta(0), "the worker was stopped")
        except SURVIVABLE as failure:
            logger.warning("nack_failed", extra={"reason": str(failure).strip()})

    def _extend(self, held: Held) -> Iterable[int]:
        lost = self._bus.extend_many(list(held.values()), self._handler.ttl)
        return lost_tokens(((each.iid, each.token) for each in held.values()), lost)

    def _ack(self, held: Held) -> None:
        for iid in self._bus.ack_many(list(held.values())):
            logger.warning("lease_lost", extra={**self._facts, "iid": iid})

    def _lose(self, message: HeldMessage) -> None:
        message.lost.set()
        self._runners.cancel(message)
