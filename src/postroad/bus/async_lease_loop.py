"""Lease mode in an event loop: lease ahead, handle, ack together; a heartbeat holds the leases."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta

from postroad import trace
from postroad.bus.async_acknowledger import AsyncAcknowledger
from postroad.bus.async_client import AsyncBus
from postroad.bus.async_heartbeat import AsyncHeartbeat
from postroad.bus.async_wakeup import AsyncWakeup
from postroad.bus.errors import InvalidArgument, LeaseLost
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.request import asks
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
from postroad.service import Service

__all__ = ["AsyncLeaseLoop"]

logger = logging.getLogger(__name__)


class AsyncLeaseLoop(Service):
    """Leases for one handler and runs up to its concurrency at once."""

    def __init__(
        self, bus: AsyncBus, handler: Handler, wakeup: AsyncWakeup, settings: WorkerSettings
    ) -> None:
        super().__init__(f"{handler.queue} by {handler.consumer}")
        self._bus = bus
        self._handler = handler
        self._wakeup = wakeup
        self._facts = {"queue": handler.queue, "consumer": handler.consumer}
        self._waiting: asyncio.Queue[HeldMessage] = asyncio.Queue()
        self._unfinished: dict[int, HeldMessage] = {}
        self._room = asyncio.Event()
        self._heartbeat = AsyncHeartbeat(bus, handler.ttl, self._lost)
        self._acknowledger = AsyncAcknowledger(
            bus, settings.ack_delay, settings.ack_batch, self._heartbeat.release
        )
        self._runners: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serve until stopped, then until all that was leased is finished or abandoned."""
        await self._heartbeat.start()
        await self._acknowledger.start()
        runners = [
            asyncio.create_task(self._work(), name=self.name)
            for _ in range(self._handler.concurrency)
        ]
        self.announce_ready()
        try:
            await self._fetch()
            await self._waiting.join()
        finally:
            for runner in runners:
                runner.cancel()
            await asyncio.gather(*runners, return_exceptions=True)
            await self._give_back()
            await self._acknowledger.stop()
            await self._heartbeat.stop()

    async def stop(self) -> None:
        """Lease no more and wait until what was leased is finished."""
        self.stopping.set()
        self._room.set()
        await super().stop()

    def abandon(self) -> None:
        """End now: cancel the handlers and give their messages back."""
        if self._task is not None:
            self._task.cancel()

    async def _fetch(self) -> None:
        handler = self._handler
        most = handler.concurrency + handler.prefetch
        backoff = Backoff()
        while not self.stopping.is_set():
            if len(self._unfinished) > handler.concurrency + handler.prefetch // 2:
                self._room.clear()
                await self._wait_for_room()
                continue
            epoch = self._wakeup.epoch(handler.queue)
            try:
                leased = await self._bus.lease(
                    handler.queue,
                    handler.consumer,
                    most - len(self._unfinished),
                    handler.ttl,
                )
            except SURVIVABLE as failure:
                logger.warning(
                    "worker_interrupted", extra={**self._facts, "reason": str(failure).strip()}
                )
                await self.pause(backoff.next_seconds())
                continue
            backoff.reset()
            for message in leased:
                self._accept(message)
            if not leased:
                await self._wakeup.wait(handler.queue, epoch)

    def _accept(self, message: LeasedMessage) -> None:
        held = hold(message)
        self._unfinished[held.token] = held
        self._heartbeat.hold(held)
        self._waiting.put_nowait(held)

    async def _wait_for_room(self) -> None:
        await self._room.wait()

    async def _work(self) -> None:
        runner = asyncio.current_task()
        assert runner is not None  # noqa: S101 - a coroutine always runs in a task
        while True:
            message = await self._waiting.get()
            try:
                if not message.lost.is_set():
                    await self._handle(runner, message)
            except asyncio.CancelledError:
                if not message.lost.is_set():
                    raise
                # The handler was cancelled for its lost lease; the runner goes on.
                runner.uncancel()
            finally:
                self._runners.pop(message.token, None)
                self._waiting.task_done()
            self._finished(message)

    async def _handle(self, runner: asyncio.Task[None], message: HeldMessage) -> None:
        self._runners[message.token] = runner
        try:
            answer = await self._answer(message)
            if answer is not None and asks(message):
                await self._bus.reply(message, answer)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its message's
            self._runners.pop(message.token, None)
            await self._fail(message, error)
        else:
            self._acknowledger.finish(message)

    async def _answer(self, message: HeldMessage) -> object:
        """Call the handler; again, at once, when it lost a conflict with another transaction."""
        trace.follow(message)
        for _ in range(CONFLICTS_MOST):
            try:
                return await self._handler.function(message)
            except Exception as error:
                if not is_conflict(error):
                    raise
                logger.info("handler_repeated", extra={**self._facts, "iid": message.iid})
        return await self._handler.function(message)

    def _finished(self, message: HeldMessage) -> None:
        self._unfinished.pop(message.token, None)
        self._room.set()

    async def _fail(self, message: HeldMessage, error: Exception) -> None:
        verdict = judge(error)
        log_verdict(logger, self._handler, message, verdict, error)
        await self._nack(message, verdict)

    async def _nack(self, message: HeldMessage, verdict: Verdict) -> None:
        backoff = Backoff()
        while not message.lost.is_set():
            try:
                await self._bus.nack(message, verdict.delay, verdict.error, verdict.park)
            except LeaseLost:
                logger.warning("lease_lost", extra={**self._facts, "iid": message.iid})
            except SURVIVABLE as failure:
                logger.warning("nack_failed", extra={"reason": str(failure).strip()})
                if isinstance(failure, InvalidArgument):
                    # What the handler asked for is impossible: the usual backoff instead.
                    verdict = replace(verdict, delay=None)
                await asyncio.sleep(backoff.next_seconds())
                continue
            break
        self._heartbeat.release(message)

    async def _give_back(self) -> None:
        """Hand back what the grace time did not suffice for; what fails here ends by itself."""
        for message in list(self._unfinished.values()):
            self._heartbeat.release(message)
            if message.lost.is_set():
                continue
            message.lost.set()
            try:
                await self._bus.nack(message, timedelta(0), "the worker was stopped")
            except SURVIVABLE as failure:
                logger.warning("nack_failed", extra={"reason": str(failure).strip()})

    def _lost(self, message: LeasedMessage) -> None:
        held = self._unfinished.get(message.token)
        if held is not None:
            held.lost.set()
        runner = self._runners.get(message.token)
        if runner is not None:
            runner.cancel()
