"""The routes of events: the state of a command's event, and what an operator may do about it.

The Coordinator receives an event a moment after the Writer has written it. Until then the Writer's
state of the event is shown, and an operator's action waits for the Coordinator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from postroad.coordination import operations, status
from postroad.coordination.errors import CoordinatorBehind, EventNotFound
from postroad.coordination.gateway.progress import poll
from postroad.coordination.resources import EVENTS, READERS
from postroad.operate import Page as ResourcePage
from postroad.operate import Resource
from postroad.operate.http import add_list
from postroad.postgres.connections import Pool
from postroad.web.cursors import decode_cursor
from postroad.web.pages import Page, page_of
from postroad.web.problems import problem_responses

MAX_ID = 2**63 - 1
EventId = Annotated[int, Path(ge=1, le=MAX_ID, description="the number of an event")]
Limit = Annotated[int, Query(ge=1, le=1000)]


class Reason(BaseModel):
    """Why an operator cancels an event."""

    # NUL cannot be stored as text.
    reason: Annotated[str, Field(max_length=2000, pattern=r"^[^\x00]*$")] = (
        "cancelled by an operator"
    )


class Accepted(BaseModel):
    """An action that will be carried out."""

    event_id: int
    accepted: Literal["cancel", "retry", "skip"]


class Skip(BaseModel):
    """The reader that drops a parked event."""

    reader: Annotated[str, Field(max_length=80, pattern=r"^[^\x00]*$")]


def add_event_routes(
    router: APIRouter,
    writer: Pool,
    coordinator: Pool,
    check: Callable[[Request], Awaitable[object]],
    timeout: timedelta,
) -> None:
    """Add queries, whose filters `check` accepts, and what an operator may do."""

    def route(path: str, summary: str, *problems: int, **action: Any) -> Callable[[Any], Any]:
        return router.api_route(
            f"/events/{{event_id}}{path}",
            **{"methods": ["GET"], **action},
            summary=summary,
            responses=problem_responses(404, 422, 503, *problems),
            tags=["events"],
        )

    action: dict[str, Any] = {"methods": ["POST"], "status_code": 202}

    async def act(event_id: int, verb: Literal["cancel", "retry"], **given: Any) -> Accepted:
        """Run an action at the Coordinator, as soon as it has the event."""

        async def is_done() -> bool:
            try:
                async with coordinator.connection() as connection:
                    await getattr(operations, verb)(connection, event_id, **given)
            except EventNotFound:
                async with writer.connection() as connection:
                    written = await status.written_event(connection, event_id)
                if written.event.finished_at is not None:
                    # The event finished so long ago that the Coordinator has purged it.
                    raise
                return False
            return True

        late = CoordinatorBehind(
            f"the Coordinator has not received event {event_id} yet", hint="retry", event=event_id
        )
        await poll(is_done, timeout, late)
        return Accepted(event_id=event_id, accepted=verb)

    async def read(resource: Resource, *given: Any, **paging: Any) -> ResourcePage:
        async with coordinator.connection() as connection:
            return await resource.page(connection, *given, **paging)

    lists = APIRouter(tags=["events"])
    add_list(lists, "/events", EVENTS, partial(read, EVENTS), check)
    add_list(lists, "/readers", READERS, partial(read, READERS), is_array=True)
    router.include_router(lists)

    @route("", "One event with its readers and its timeline")
    async def get_event(event_id: EventId) -> status.EventDetail:
        try:
            async with coordinator.connection() as connection:
                return await status.event(connection, event_id)
        except EventNotFound:
            async with writer.connection() as connection:
                return await status.written_event(connection, event_id)

    @route("/payloads", "The payloads of an event")
    async def list_payloads(
        event_id: EventId, limit: Limit = 100, cursor: str | None = None
    ) -> Page[status.PayloadStatus]:
        after = decode_cursor(cursor, int)[0] if cursor else 0
        async with writer.connection() as connection:
            found = await status.payloads(connection, event_id, after=after, limit=limit + 1)
            if not found:
                # An event without payloads is an empty list; an unknown event is an error.
                await status.written_event(connection, event_id)
        return page_of(found, limit, lambda payload: (payload.sequence,))

    @route("/cancel", "Cancel an event that is not committed", 409, **action)
    async def cancel_event(event_id: EventId, body: Reason | None = None) -> Accepted:
        return await act(event_id, "cancel", reason=(body or Reason()).reason)

    @route("/retry", "Try a parked event, or a refused rollback, again", **action)
    async def retry_event(event_id: EventId) -> Accepted:
        return await act(event_id, "retry")

    @route("/skip", "Drop a parked event at one reader", **action)
    async def skip_event(event_id: EventId, body: Skip) -> Accepted:
        async with coordinator.connection() as connection:
            await operations.skip(connection, event_id, reader=body.reader)
        return Accepted(event_id=event_id, accepted="skip")
