"""The routes of events: what became of a command, and what an operator may do about it.

An event is written by the Writer and known to the Coordinator a moment later. Asked for in between,
it is shown as the Writer has it; what an operator wants waits until the Coordinator has heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel, Field

from postroad.coordination import operations, status
from postroad.coordination.errors import CoordinatorBehind, EventNotFound
from postroad.web import Page, RequestInvalid, decode_cursor, page_of, problem_responses

__all__ = ["EventId", "EventRoutes", "known_entity"]

PAUSE_SECONDS = 0.02
LARGEST = 2**63 - 1
EventId = Annotated[int, Path(ge=1, le=LARGEST, description="the number of an event")]

_ENTITY = 'select exists (select from coordination."AppEventType" t where t."Entity" = %s)'


class Reason(BaseModel):
    """Why an operator cancels an event."""

    # NUL cannot be stored as text.
    reason: Annotated[str, Field(max_length=2000, pattern=r"^[^\x00]*$")] = (
        "cancelled by an operator"
    )


class Accepted(BaseModel):
    """What was asked for is on its way."""

    event_id: int
    accepted: Literal["cancel", "retry", "skip"]


class Skip(BaseModel):
    """Where a parked event is dropped."""

    reader: Annotated[str, Field(max_length=80, pattern=r"^[^\x00]*$")]


class EventRoutes:
    """Adds the routes of events to a router."""

    def __init__(
        self,
        writer: AsyncConnectionPool[Any],
        coordinator: AsyncConnectionPool[Any],
        timeout: timedelta,
    ) -> None:
        self._writer = writer
        self._coordinator = coordinator
        self._timeout = timeout

    def add_to(self, router: APIRouter) -> None:
        """Add queries and what an operator may do."""
        kinds: dict[str, Any] = {"tags": ["events"]}
        router.add_api_route(
            "/events",
            self.list_events,
            summary="Events, the latest first",
            responses=problem_responses(422, 503),
            **kinds,
        )
        router.add_api_route(
            "/events/{event_id}",
            self.get_event,
            summary="One event with its readers and its timeline",
            responses=problem_responses(404, 422, 503),
            **kinds,
        )
        router.add_api_route(
            "/events/{event_id}/payloads",
            self.list_payloads,
            summary="The payloads of an event",
            responses=problem_responses(404, 422, 503),
            **kinds,
        )
        router.add_api_route(
            "/events/{event_id}/cancel",
            self.cancel_event,
            methods=["POST"],
            summary="Cancel an event that is not committed",
            status_code=202,
            responses=problem_responses(404, 409, 422, 503),
            **kinds,
        )
        router.add_api_route(
            "/events/{event_id}/retry",
            self.retry_event,
            methods=["POST"],
            summary="Try a parked event, or a refused rollback, again",
            status_code=202,
            responses=problem_responses(404, 422, 503),
            **kinds,
        )
        router.add_api_route(
            "/events/{event_id}/skip",
            self.skip_event,
            methods=["POST"],
            summary="Drop a parked event at one reader",
            status_code=202,
            responses=problem_responses(404, 422, 503),
            **kinds,
        )
        router.add_api_route(
            "/readers", self.list_readers, summary="The readers and how far they are", **kinds
        )

    async def list_events(
        self,
        state: status.State | None = None,
        entity: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: str | None = None,
    ) -> Page[status.EventStatus]:
        """List events; `state` and `entity` choose among them."""
        before = _number(cursor)
        await known_entity(self._writer, entity)
        async with self._coordinator.connection() as connection:
            found = await status.events(
                connection, state=state, entity=entity, before=before, limit=limit + 1
            )
        return page_of(found, limit, lambda event: (event.position,))

    async def get_event(self, event_id: EventId) -> status.EventDetail:
        """Tell everything about one event."""
        try:
            async with self._coordinator.connection() as connection:
                return await status.event(connection, event_id)
        except EventNotFound:
            async with self._writer.connection() as connection:
                return await status.written_event(connection, event_id)

    async def list_payloads(
        self,
        event_id: EventId,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: str | None = None,
    ) -> Page[status.PayloadStatus]:
        """List the payloads of an event in their order."""
        after = _number(cursor) or 0
        async with self._writer.connection() as connection:
            found = await status.payloads(connection, event_id, after=after, limit=limit + 1)
            if not found:
                # Of an event without payloads there is nothing to list; an unknown one is refused.
                await status.written_event(connection, event_id)
        return page_of(found, limit, lambda payload: (payload.sequence,))

    async def cancel_event(self, event_id: EventId, body: Reason | None = None) -> Accepted:
        """Cancel an event that is not committed anywhere."""
        reason = (body or Reason()).reason
        await self._heard(event_id, lambda each: operations.cancel(each, event_id, reason))
        return Accepted(event_id=event_id, accepted="cancel")

    async def retry_event(self, event_id: EventId) -> Accepted:
        """Try a parked event, or a refused rollback, again."""
        await self._heard(event_id, lambda each: operations.retry(each, event_id))
        return Accepted(event_id=event_id, accepted="retry")

    async def skip_event(self, event_id: EventId, body: Skip) -> Accepted:
        """Drop a parked event at one reader."""
        async with self._coordinator.connection() as connection:
            await operations.skip(connection, event_id, body.reader)
        return Accepted(event_id=event_id, accepted="skip")

    async def list_readers(self) -> list[status.ReaderStatus]:
        """List the readers that the Coordinator knows."""
        async with self._coordinator.connection() as connection:
            return await status.readers(connection)

    async def _heard(self, event_id: int, act: Callable[[Any], Awaitable[None]]) -> None:
        """Do something at the Coordinator, as soon as it has heard of the event."""
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                while not await self._did(event_id, act):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError as late:
            raise CoordinatorBehind(
                f"the Coordinator has not heard of event {event_id} yet",
                hint="ask again",
                event=event_id,
            ) from late

    async def _did(self, event_id: int, act: Callable[[Any], Awaitable[None]]) -> bool:
        try:
            async with self._coordinator.connection() as connection:
                await act(connection)
        except EventNotFound:
            async with self._writer.connection() as connection:
                written = await status.written_event(connection, event_id)
            if written.event.finished_at is not None:
                # Finished so long ago that the Coordinator has forgotten it.
                raise
            return False
        return True


async def known_entity(database: AsyncConnectionPool[Any], entity: str | None) -> None:
    """Refuse a filter that nothing could ever pass. Raises RequestInvalid."""
    if entity is None:
        return
    found = None
    if "\x00" not in entity:
        async with database.connection() as connection:
            cursor = await connection.execute(_ENTITY, (entity,))
            found = await cursor.fetchone()
    if not found or not found[0]:
        raise RequestInvalid(
            f"no entity is called {entity[:80]!r}", hint="GET /coordination/v1/entities lists them"
        )


def _number(cursor: str | None) -> int | None:
    if not cursor:
        return None
    number: int = decode_cursor(cursor, int)[0]
    if abs(number) > LARGEST:
        raise RequestInvalid("the cursor belongs to another list", hint="begin without one")
    return number
