"""Reports of a worker: its handlers, the messages that each has leased, and what was measured."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Sequence

from postroad.bus import rows
from postroad.bus.call import Call
from postroad.bus.client import AsyncBus
from postroad.bus.lease_loop import LeaseLoop
from postroad.bus.reconnect import SURVIVABLE
from postroad.bus.transaction_loop import TransactionLoops
from postroad.service import Service

logger = logging.getLogger(__name__)

REPORT_INTERVAL_SECONDS = 5.0
REPORTS_PER_MEASURE = 2
LAST_REPORT_TIMEOUT_SECONDS = 2.0
MAX_REPORTED = 1_000


class WorkerReports(Service):
    """Reports regularly, and reports the end of the handlers when the worker stops.

    A failed report is logged and not repeated: the next one has the same effect. Measures that
    cannot be sent are dropped.
    """

    def __init__(self, bus: AsyncBus, loops: Sequence[LeaseLoop | TransactionLoops]) -> None:
        super().__init__("worker reports")
        self._bus = bus
        self._loops = [(f"{socket.gethostname()}-{uuid.uuid4()}", loop) for loop in loops]

    async def run(self) -> None:
        """Report until stopped."""
        self.announce_ready()
        is_reported, reports = False, 0
        while not self.stopping.is_set():
            is_reported = await self._report()
            reports += 1
            if reports % REPORTS_PER_MEASURE == 0:
                await self._measure()
            await self.pause(REPORT_INTERVAL_SECONDS)
        # A database that has become unavailable must not delay the end of the worker.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_TIMEOUT_SECONDS):
                await self._measure()
                if is_reported:
                    await self._report(is_last=True)

    async def _measure(self) -> None:
        for taken in [loop.measures.take() for _, loop in self._loops]:
            try:
                if taken is not None:
                    await self._bus.measure(*taken)
            except SURVIVABLE as failure:
                logger.info("measures_dropped", extra={"reason": str(failure).strip()})

    async def _report(self, *, is_last: bool = False) -> bool:
        for name, loop in self._loops:
            handler = loop.handler
            concurrency = 0 if is_last else handler.concurrency
            of = handler.queue, handler.consumer
            facts = (*of, name, socket.gethostname(), os.getpid(), handler.mode, concurrency)
            text = "select mbus.report_worker(%s, %s, %s, %s, %s, %s, %s, %s)"
            report = Call(text, (*facts, loop.held()[:MAX_REPORTED]), rows.nothing, *of)
            try:
                await self._bus._run(report)
            except SURVIVABLE as failure:
                logger.debug("report_failed", extra={"reason": str(failure).strip()})
                return False
        return True
