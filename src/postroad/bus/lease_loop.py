"""Lease mode in a thread: lease ahead, handle, ack together; a heartbeat holds the leases."""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import replace
from datetime import timedelta

from postroad import trace
from postroad.bus.acknowledger import Acknowledger
from postroad.bus.client import Bus
from postroad.bus.errors import InvalidArgument, LeaseLost
from postroad.bus.heartbeat import Heartbeat
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.request import asks
from postroad.bus.thread import ThreadService
from postroad.bus.wakeup import Wakeup
from postroad.bus.worker import (
    CONFLICTS_MOST,
    Handler,
    HeldMessage,
    Verdict,
    WorkerSettings,
    hold,
    is_conflict,
    judge,
    log_verdict,
)

__all__ = ["LeaseLoop"]

logger = logging.getLogger(__name__)

ROOM_SECONDS = 0.1


class LeaseLoop(ThreadService):
    """Leases for one handler and runs up to its concurrency at once."""

    def __init__(
        self, bus: Bus, handler: Handler, wakeup: Wakeup, settings: WorkerSettings
    ) -> None:
        super().__init__(f"{handler.queue} by {handler.consumer}")
        self._bus = bus
        self._handler = handler
        self._wakeup = wakeup
        self._facts = {"queue": handler.queue, "consumer": handler.consumer}
        self._waiting: queue.Queue[HeldMessage | None] = queue.Queue()
        self._unfinished: dict[int, HeldMessage] = {}
        self._room = threading.Event()
        self._heartbeat = Heartbeat(bus, handler.ttl, self._lost)
        self._acknowledger = Acknowledger(
            bus, settings.ack_delay, settings.ack_batch, self._heartbeat.release
        )
        self._abandoned = threading.Event()

    def run(self) -> None:
        """Serve until stopped, then until all that was leased is finished or abandoned."""
        self._heartbeat.start()
        self._acknowledger.start()
        runners = [
            threading.Thread(target=self._work, name=self.name, daemon=True)
            for _ in range(self._handler.concurrency)
        ]
        for runner in runners:
            runner.start()
        self.announce_ready()
        try:
            self._fetch()
            while self._unfinished and not self._abandoned.is_set():
                self._room.clear()
                self._wait_for_room()
        finally:
            for _ in runners:
                self._waiting.put(None)
            self._give_back()
            self._acknowledger.stop()
            self._heartbeat.stop()

    def stop(self) -> None:
        """Lease no more and wait until what was leased is finished."""
        self.stopping.set()
        self._room.set()
        super().stop()

    def abandon(self) -> None:
        """End now: tell the handlers that their leases are lost and give their messages back."""
        self._abandoned.set()
        self._room.set()
        self.join()

    def _fetch(self) -> None:
        handler = self._handler
        most = handler.concurrency + handler.prefetch
        backoff = Backoff()
        while not self.stopping.is_set():
            if len(self._unfinished) > handler.concurrency + handler.prefetch // 2:
                self._room.clear()
                self._wait_for_room()
                continue
            epoch = self._wakeup.epoch(handler.queue)
            try:
                leased = self._bus.lease(
                    handler.queue,
                    handler.consumer,
                    most - len(self._unfinished),
                    handler.ttl,
                )
            except SURVIVABLE as failure:
                logger.warning(
                    "worker_interrupted", extra={**self._facts, "reason": str(failure).strip()}
                )
                self.pause(backoff.next_seconds())
                continue
            backoff.reset()
            for message in leased:
                self._accept(message)
            if not leased:
                self._wakeup.wait(handler.queue, epoch)

    def _accept(self, message: LeasedMessage) -> None:
        held = hold(message)
        self._unfinished[held.token] = held
        self._heartbeat.hold(held)
        self._waiting.put(held)

    def _wait_for_room(self) -> None:
        # The bound covers the instant between the last look and the clearing of the event.
        self._room.wait(ROOM_SECONDS)

    def _work(self) -> None:
        while (message := self._waiting.get()) is not None:
            if not message.lost.is_set():
                self._handle(message)
            self._finished(message)

    def _handle(self, message: HeldMessage) -> None:
        try:
            answer = self._answer(message)
            if answer is not None and asks(message):
                self._bus.reply(message, answer)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its message's
            self._fail(message, error)
        else:
            if not message.lost.is_set():
                self._acknowledger.finish(message)

    def _answer(self, message: HeldMessage) -> object:
        """Call the handler; again, at once, when it lost a conflict with another transaction."""
        trace.follow(message)
        for _ in range(CONFLICTS_MOST):
            try:
                return self._handler.function(message)
            except Exception as error:
                if not is_conflict(error):
                    raise
                logger.info("handler_repeated", extra={**self._facts, "iid": message.iid})
        return self._handler.function(message)

    def _finished(self, message: HeldMessage) -> None:
        self._unfinished.pop(message.token, None)
        self._room.set()

    def _fail(self, message: HeldMessage, error: Exception) -> None:
        verdict = judge(error)
        log_verdict(logger, self._handler, message, verdict, error)
        self._nack(message, verdict)

    def _nack(self, message: HeldMessage, verdict: Verdict) -> None:
        backoff = Backoff()
        while not message.lost.is_set():
            try:
                self._bus.nack(message, verdict.delay, verdict.error, verdict.park)
            except LeaseLost:
                logger.warning("lease_lost", extra={**self._facts, "iid": message.iid})
            except SURVIVABLE as failure:
                logger.warning("nack_failed", extra={"reason": str(failure).strip()})
                if isinstance(failure, InvalidArgument):
                    # What the handler asked for is impossible: the usual backoff instead.
                    verdict = replace(verdict, delay=None)
                message.lost.wait(backoff.next_seconds())
                continue
            break
        self._heartbeat.release(message)

    def _give_back(self) -> None:
        """Hand back what the grace time did not suffice for; what fails here ends by itself."""
        for message in list(self._unfinished.values()):
            self._heartbeat.release(message)
            if message.lost.is_set():
                continue
            message.lost.set()
            try:
                self._bus.nack(message, timedelta(0), "the worker was stopped")
            except SURVIVABLE as failure:
                logger.warning("nack_failed", extra={"reason": str(failure).strip()})

    def _lost(self, message: LeasedMessage) -> None:
        held = self._unfinished.get(message.token)
        if held is not None:
            held.lost.set()
