"""The Reader's service: pulls pages from the Writer, stages and applies them, votes.

```
woken by a message, or by the clock
   └─ pull a page after the cursor ──> stage(): payloads, cursor, what can be applied,
                                       the acknowledgement (which is the vote): one transaction
decision heard ──> settle(): applied, or the staged rows are dropped
```

The message only says that there is something; the cursor says what. So a message that is lost,
doubled or late changes nothing but the moment. While a page is staged the next one is being pulled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from psycopg import AsyncConnection

from postroad.bus.reconnect import TRANSIENT
from postroad.coordination import calls
from postroad.coordination.calls import said_async
from postroad.coordination.errors import EventNotFound, EventsPurged, WriterUnreachable
from postroad.coordination.inbox import Inbox
from postroad.coordination.snapshot import take_snapshot
from postroad.coordination.steady import SteadyService, notify, run_together
from postroad.coordination.upkeep import Upkeep
from postroad.coordination.writer_service import KEEP_DEFAULT
from postroad.postgres.connections import connect_async
from postroad.service import Service

__all__ = ["Change", "Check", "Puller", "Reader"]

logger = logging.getLogger(__name__)

PAGE_DEFAULT = 10
POLL_INTERVAL_DEFAULT = timedelta(seconds=1)
REPEAT_DEFAULT = timedelta(seconds=5)
MAX_ATTEMPTS_DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A changed row, as a check of a Reader gets it.

    `entity` is its name at the Writer, `operation` is Insert, Update or Delete. `content` holds the
    row after the change by column, of a Delete the key only. Numbers with a fraction are Decimal;
    uuid, date and time columns are text, and so are `json` and `jsonb` columns.
    """

    entity: str
    operation: Literal["Insert", "Update", "Delete"]
    content: dict[str, Any]


# Returns why the event is refused, or None.
Check = Callable[[int, Sequence[Change]], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page as the Writer gave it, not looked into."""

    text: str
    events: int
    payloads: int
    more: bool
    position: int
    sequence: int


class Puller(SteadyService):
    """Pulls from the Writer's database and stages in the Reader's."""

    def __init__(
        self,
        dsn: str,
        writer: str,
        *,
        page: int = PAGE_DEFAULT,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
        repeat: timedelta = REPEAT_DEFAULT,
        max_attempts: int = MAX_ATTEMPTS_DEFAULT,
        wait: Literal["entity", "all"] = "entity",
        checks: Sequence[Check] = (),
        snapshot: bool = True,
        listen: bool = True,
    ) -> None:
        super().__init__(
            "coordination puller", dsn, queues=[calls.EVENTS], pause=poll_interval, listen=listen
        )
        self._writer_dsn = writer
        self._writer: AsyncConnection[Any] | None = None
        self._page = page
        self._repeat = repeat
        self._settings = (wait, max_attempts, bool(checks))
        self._checks = tuple(checks)
        self._takes_snapshot = snapshot
        self.pulls = 0

    async def prepare(self, connection: AsyncConnection[Any]) -> None:
        """Take the first snapshot, if this Reader is new, and say who is here."""
        await connection.execute(calls.CONFIGURE_READER, (*self._settings, *self._settings))
        cursor = await connection.execute(calls.CURSOR)
        row = await cursor.fetchone()
        if self._takes_snapshot and row is not None and row[0] == 0 and not row[2]:
            await self._take_snapshot()
        await connection.execute(calls.ANNOUNCE)
        await notify(connection, calls.VOTES)

    async def work(self, connection: AsyncConnection[Any]) -> bool:
        """Catch up with the Writer; what was announced meanwhile is found, too."""
        try:
            writer = await self._reach_writer()
            async with connection.transaction():
                # Before the pull: what is announced after it wakes us again.
                await connection.execute(calls.DROP_EVENTS)
                cursor = await connection.execute(calls.CURSOR)
                row = await cursor.fetchone()
                if row is None:
                    return False
                needs_snapshot = bool(row[3])
                if not needs_snapshot:
                    page = await self._pull(writer, row[0], row[1])
                    following = await self._stage(connection, writer, page)
            if needs_snapshot:
                # The Coordinator had forgotten this Reader, and what it missed may be gone.
                await self._take_snapshot()
                return True
            staged = page.events
            while following is not None and not self.stopping.is_set():
                page = following
                staged += page.events
                following = await self._stage(connection, writer, page)
        except EventsPurged:
            # Away for longer than events are kept for those whom nobody waits for.
            await self._take_snapshot()
            return True
        except TRANSIENT as failure:
            await self._leave_writer()
            raise WriterUnreachable(
                f"pulling was interrupted: {str(failure).strip() or type(failure).__name__}",
                hint="it is tried again by itself",
            ) from failure
        cursor = await connection.execute(calls.ATTEND, (self._repeat,))
        row = await cursor.fetchone()
        voted = await self._check(connection) if self._checks else 0
        if staged or voted or (row and row[0]):
            await notify(connection, calls.VOTES)
            self.signals.emit("staged", staged)
        return bool(voted or (row and row[0]))

    async def _stage(
        self, connection: AsyncConnection[Any], writer: AsyncConnection[Any], page: Page
    ) -> Page | None:
        """Stage a page; pull the next one meanwhile and return it."""
        if not page.events:
            return None
        if not page.more:
            await connection.execute(calls.STAGE, (page.text,))
            return None
        ahead = asyncio.create_task(self._pull(writer, page.position, page.sequence))
        try:
            await connection.execute(calls.STAGE, (page.text,))
        except BaseException:
            # No task group: what is raised must stay what it is, for that decides what follows.
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
            raise
        return await ahead

    async def _pull(self, writer: AsyncConnection[Any], position: int, sequence: int) -> Page:
        self.pulls += 1
        async with said_async():
            cursor = await writer.execute(calls.PULL, (position, sequence, self._page))
        row = await cursor.fetchone()
        if row is None:
            return Page("", 0, 0, False, position, sequence)
        return Page(*row)

    async def _check(self, connection: AsyncConnection[Any]) -> int:
        """Let the Reader's own checks vote on what waits for them."""
        cursor = await connection.execute(calls.WAITING_FOR_CHECKS)
        waiting = [int(row[0]) for row in await cursor.fetchall()]
        for event in waiting:
            async with connection.cursor() as payloads:
                calls.read_exactly(payloads)
                await payloads.execute(calls.STAGED_PAYLOADS, (event,))
                changes = [Change(*row) for row in await payloads.fetchall()]
            reason = None
            for check in self._checks:
                reason = await _ask(check, event, changes)
                if reason is not None:
                    break
            try:
                async with said_async():
                    await connection.execute(calls.VOTE, (event, reason))
            except EventNotFound:
                # Decided against while the check was running: nobody asks any more.
                logger.info("vote_too_late", extra={"event_id": event})
        return len(waiting)

    async def _take_snapshot(self) -> None:
        await self._reach_writer()
        await take_snapshot(self._writer_dsn, self.dsn)
        self.signals.emit("snapshot")

    async def _reach_writer(self) -> AsyncConnection[Any]:
        if self._writer is None or self._writer.closed:
            self._writer = await connect_async(
                self._writer_dsn, application_name="postroad coordination pull", autocommit=True
            )
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


async def _ask(check: Check, event: int, changes: Sequence[Change]) -> str | None:
    # The Reader goes on without a check that is broken.
    try:
        return await check(event, changes)
    except Exception as failure:
        logger.exception("check_failed", extra={"event_id": event})
        name = getattr(check, "__name__", repr(check))
        return f"the check {name} failed: {type(failure).__name__}: {failure}"


class Reader(Service):
    """Everything that runs beside a Reader's database."""

    def __init__(
        self,
        dsn: str,
        writer: str,
        *,
        page: int = PAGE_DEFAULT,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
        repeat: timedelta = REPEAT_DEFAULT,
        max_attempts: int = MAX_ATTEMPTS_DEFAULT,
        wait: Literal["entity", "all"] = "entity",
        checks: Sequence[Check] = (),
        snapshot: bool = True,
        keep: timedelta = KEEP_DEFAULT,
        listen: bool = True,
    ) -> None:
        super().__init__("coordination reader")
        self.puller = Puller(
            dsn,
            writer,
            page=page,
            poll_interval=poll_interval,
            repeat=repeat,
            max_attempts=max_attempts,
            wait=wait,
            checks=checks,
            snapshot=snapshot,
            listen=listen,
        )
        self.inbox = Inbox(
            "coordination reader inbox",
            dsn,
            queue=calls.DECISIONS,
            consumer="reader",
            call="coordination.settle({})",
            posts_to=(calls.VOTES,),
            listen=listen,
        )
        self.upkeep = Upkeep(dsn, keep=keep)

    async def run(self) -> None:
        """Pull, settle and tidy up until stopped."""
        await run_together(self, (self.puller, self.inbox, self.upkeep))
