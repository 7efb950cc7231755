"""The Reader's service: pulls pages from the Writer, stages and applies them, votes.

```
woken by a notice of the Writer's database, or after the interval
   └─ pull a page after the cursor ──> stage(): payloads, cursor, what can be applied,
                                       the acknowledgement (which is the vote): one transaction
decision received ──> applied, or the staged rows are dropped
```

A notice only wakes the Reader; its cursor determines what is pulled. A lost, duplicated or late
notice only changes the time of the pull. While a page is staged the next one is pulled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import psycopg

from postroad.bus.reconnect import TRANSIENT
from postroad.coordination import calls
from postroad.coordination.errors import EventNotFound, EventsPurged, WriterUnreachable
from postroad.coordination.inbox import Inbox
from postroad.coordination.service import KEEP_DEFAULT, PollingService, Upkeep
from postroad.coordination.snapshot import take_snapshot
from postroad.postgres.calls import Connection, call, run
from postroad.postgres.connections import connect_async

logger = logging.getLogger(__name__)

PAGE_DEFAULT = 1000
POLL_INTERVAL = timedelta(seconds=1)
# The interval without notices, behind a pooler; and after a page, to report what it finished.
SHORT_INTERVAL = timedelta(milliseconds=100)
REPEAT_DEFAULT = timedelta(seconds=5)
MAX_ATTEMPTS_DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A changed row, passed to a check of a Reader.

    `entity` is its name at the Writer, `operation` is Insert, Update or Delete. `content` maps
    columns to their values after the change, for a Delete only the key. Numbers with a fraction are
    Decimal; uuid, date and time columns are text, and so are `json` and `jsonb` columns.
    """

    entity: str
    operation: Literal["Insert", "Update", "Delete"]
    content: dict[str, Any]


# Returns the reason to refuse an event, or None.
Check = Callable[[int, Sequence[Change]], Awaitable[str | None]]


class Page(NamedTuple):
    """A page as the Writer returned it, not parsed."""

    text: str
    events: int
    more: bool
    position: int
    sequence: int
    afters: calls.TextArray | None
    befores: calls.TextArray | None


class Reader(PollingService):
    """Runs beside a Reader's database: pulls and stages pages; inbox and upkeep."""

    def __init__(
        self,
        dsn: str,
        writer: str,
        *,
        page: int = PAGE_DEFAULT,
        repeat: timedelta = REPEAT_DEFAULT,
        max_attempts: int = MAX_ATTEMPTS_DEFAULT,
        wait: Literal["entity", "all"] = "entity",
        checks: Sequence[Check] = (),
        keep: timedelta = KEEP_DEFAULT,
        listen: bool = True,
    ) -> None:
        inbox = Inbox("reader", dsn, calls.DECISIONS, "coordination.settle({})", listen=listen)
        self._interval = POLL_INTERVAL if listen else SHORT_INTERVAL
        super().__init__(
            "coordination reader",
            dsn,
            inbox,
            Upkeep(dsn, keep),
            notice=(writer, calls.CHANNEL, calls.PUBLISHED),
            pause=self._interval,
            listen=listen,
        )
        self._writer_dsn = writer
        self._writer: Connection | None = None
        self._page = page
        self._repeat = repeat
        self._settings = (wait, max_attempts, bool(checks))
        self._checks = tuple(checks)
        self.pulls = 0

    async def prepare(self, connection: Connection) -> None:
        """Take the first snapshot if this Reader is new, and announce it to the Coordinator."""
        calls.pass_arrays(connection)
        await call(connection, "coordination.configure_reader", *self._settings)
        found = await run(connection.cursor(), calls.CURSOR)
        if found and found[0][0] == 0 and not found[0][2]:
            await self._take_snapshot()
        await call(connection, "coordination.announce")

    async def work(self, connection: Connection) -> bool:
        """Pull and stage until the Reader has caught up, retry what is due, and vote."""
        try:
            writer = await self._reach_writer()
            (row,) = await run(connection.cursor(), calls.CURSOR)
            if row[3]:
                # The Coordinator had removed this Reader, and events that it missed may be purged.
                await self._take_snapshot()
                return True
            page: Page = await self._pull(writer, row[0], row[1])
            interval = SHORT_INTERVAL if page.events else self._interval
            self._pause_seconds = interval.total_seconds()
            following: Page | None = page
            while following is not None and not self.stopping.is_set():
                following = await self._stage(connection, writer, following)
        except EventsPurged:
            # The Reader was down for longer than the Writer keeps events.
            await self._take_snapshot()
            return True
        except TRANSIENT as failure:
            await self._leave_writer()
            raise WriterUnreachable(
                f"pulling was interrupted: {str(failure).strip() or type(failure).__name__}",
                hint="it is retried automatically",
            ) from failure
        has_more = await call(connection, "coordination.attend", self._repeat)
        voted = await self._check(connection) if self._checks else 0
        return bool(voted or has_more)

    async def _stage(self, connection: Connection, writer: Connection, page: Page) -> Page | None:
        """Stage a page; pull the next one meanwhile and return it."""
        if not page.events:
            return None
        if not page.more:
            await run(connection.cursor(), calls.STAGE, page.text, page.afters, page.befores)
            return None
        ahead = asyncio.create_task(self._pull(writer, page.position, page.sequence))
        try:
            await run(connection.cursor(), calls.STAGE, page.text, page.afters, page.befores)
        except BaseException:
            # Not a task group, which would wrap the error: the caller handles it by its class.
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
            raise
        return await ahead

    async def _pull(self, writer: Connection, position: int, sequence: int) -> Page:
        self.pulls += 1
        while True:
            try:
                given = position, sequence, self._page
                (row,) = await run(writer.cursor(binary=True), calls.PULL, *given)
                return Page(*row)
            except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.OutOfMemory):
                # The rows of a page together exceed what the server can send.
                if self._page == 1:
                    raise
                self._page = max(1, self._page // 2)

    async def _check(self, connection: Connection) -> int:
        """Vote on the events that wait for the Reader's own checks."""
        waiting = await run(connection.cursor(), calls.WAITING_FOR_CHECKS)
        for (event,) in waiting:
            async with connection.cursor() as payloads:
                calls.read_exactly(payloads)
                await payloads.execute(calls.STAGED_PAYLOADS, (event,))
                changes = [Change(*row) for row in await payloads.fetchall()]
            try:
                await call(connection, "coordination.vote", event, await self._ask(event, changes))
            except EventNotFound:
                # Cancelled while the check was running.
                logger.info("vote_too_late", extra={"event_id": event})
        return len(waiting)

    async def _ask(self, event: int, changes: Sequence[Change]) -> str | None:
        # A check that raises counts as a no; the Reader continues.
        for check in self._checks:
            try:
                reason = await check(event, changes)
            except Exception as failure:
                logger.exception("check_failed", extra={"event_id": event})
                name = getattr(check, "__name__", repr(check))
                return f"the check {name} failed: {type(failure).__name__}: {failure}"
            if reason is not None:
                return reason
        return None

    async def _take_snapshot(self) -> None:
        await self._reach_writer()
        await take_snapshot(self._writer_dsn, self.dsn)

    async def _reach_writer(self) -> Connection:
        if self._writer is None or self._writer.closed:
            self._writer = await connect_async(
                self._writer_dsn, application_name="postroad coordination pull", autocommit=True
            )
            calls.pass_arrays(self._writer)
        return self._writer

    async def _leave_writer(self) -> None:
        if self._writer is not None:
            await self._writer.close()
            self._writer = None

    async def run(self) -> None:
        """Pull until stopped."""
        try:
            await super().run()
        finally:
            await self._leave_writer()
