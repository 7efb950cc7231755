"""Server-sent events for the events that the Reader finishes.

Each event has the Reader's own number as its id, so a client that reconnects with `Last-Event-ID`
misses no event that is still kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from postroad.coordination.gateway.event_routes import MAX_ID
from postroad.postgres.calls import rows, value
from postroad.postgres.connections import Pool
from postroad.web.problems import problem_responses

POLL_SECONDS = 0.1
BATCH = 500

_LAST = 'select coalesce(max("Number"), 0) from coordination."AppEvent"'
_NEXT = (
    'select e."Number" as number, e."Id" as event_id, t."Name" as type, e."Entities" as entities,'
    ' e."PayloadCount" as payloads, coordination._status_name(e."AppEventStatusId") as state,'
    ' e."FinishedAt" as at from coordination."AppEvent" e'
    ' join coordination."AppEventType" t on t."Id" = e."AppEventTypeId"'
    ' where e."Number" > %s order by e."Number" limit %s'
)


def add_change_route(
    router: APIRouter, reader: Pool, check: Callable[..., Any], is_stopping: Callable[[], bool]
) -> None:
    """Add the stream of changes, after `check` of the request."""

    @router.get(
        "/changes",
        summary="The events that the Reader finishes, as server-sent events",
        tags=["events"],
        dependencies=[Depends(check)],
        response_class=EventSourceResponse,
        responses=problem_responses(422, 503),
    )
    async def stream_changes(
        entity: str | None = None,
        after: Annotated[int | None, Query(ge=0, le=MAX_ID)] = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> AsyncIterator[ServerSentEvent]:
        if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit():
            after = min(int(last_event_id[:20]), MAX_ID)
        if after is None:
            async with reader.connection() as connection:
                after = int(await value(connection, _LAST))
        yield ServerSentEvent(comment="listening")
        while not is_stopping():
            async with reader.connection() as connection:
                found = await rows(connection, _NEXT, after, BATCH)
            for change in found:
                after = change.pop("number")
                if entity is None or entity in change["entities"]:
                    yield ServerSentEvent(id=str(after), event="change", data=change)
            if not found:
                await asyncio.sleep(POLL_SECONDS)
