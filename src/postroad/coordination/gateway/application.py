"""The routes: those of every database, and those generated for each entity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.responses import StreamingResponse
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from postroad.coordination import operations, status
from postroad.coordination.gateway.changes import changes
from postroad.coordination.gateway.entity_routes import EntityRoutes
from postroad.coordination.gateway.shapes import Shape
from postroad.coordination.gateway.waiting import wait_for_event
from postroad.web import (
    BodyLimit,
    Page,
    TokenMissing,
    bearer_token,
    decode_cursor,
    hash_token,
    is_token_of,
    page_of,
    prepare,
    problem_responses,
)

__all__ = ["PREFIX", "GatewayDatabases", "make_application"]

PREFIX = "/coordination/v1"
BODY_BYTES_MOST = 1_000_000
AFTER_TIMEOUT_DEFAULT = timedelta(seconds=5)
RECONNECT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class GatewayDatabases:
    """Pools to the three databases; their owner opens and closes them."""

    writer: AsyncConnectionPool[Any]
    coordinator: AsyncConnectionPool[Any]
    reader: AsyncConnectionPool[Any]


class Reason(BaseModel):
    """Why an operator cancels an event."""

    reason: str = "cancelled by an operator"


class Accepted(BaseModel):
    """What was asked for is on its way."""

    event_id: int
    accepted: Literal["cancel", "retry"]


def make_application(
    databases: GatewayDatabases,
    shapes: list[Shape],
    *,
    after_timeout: timedelta = AFTER_TIMEOUT_DEFAULT,
    token: str | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Build the application; with a token every request must bear it.

    `is_stopping` ends the streams of changes, which would go on for as long as their clients.
    """
    app = prepare(
        FastAPI(
            title="Postroad coordination",
            version="1",
            openapi_url=f"{PREFIX}/openapi.json",
            docs_url=f"{PREFIX}/docs",
            redoc_url=None,
        )
    )
    app.add_middleware(BodyLimit, limit_bytes=BODY_BYTES_MOST)
    guards = [Depends(_guard(hash_token(token)))] if token else []
    router = APIRouter(prefix=PREFIX, dependencies=guards)

    async def wait(after: int | None) -> None:
        if after is not None:
            await wait_for_event(after, databases.writer, databases.reader, after_timeout)

    _add_event_routes(router, databases)
    _add_change_route(router, databases, is_stopping)

    @router.get("/entities", summary="The entities that are tracked", tags=["entities"])
    async def list_entities() -> list[dict[str, Any]]:
        async with databases.writer.connection() as connection:
            return [asdict(each) for each in await status.entities(connection)]

    for shape in shapes:
        EntityRoutes(shape, databases.writer, databases.reader, wait).add_to(router)
    app.include_router(router)
    return app


def _guard(stored: str) -> Callable[[Request], Awaitable[None]]:
    async def guard(request: Request) -> None:
        if not is_token_of(bearer_token(request), stored):
            raise TokenMissing("nobody has this token", hint="ask who runs the Gateway for one")

    return guard


def _add_event_routes(router: APIRouter, databases: GatewayDatabases) -> None:
    @router.get(
        "/events",
        summary="Events, the latest first",
        tags=["events"],
        responses=problem_responses(422, 503),
    )
    async def list_events(
        state: str | None = None,
        entity: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: str | None = None,
    ) -> Page[status.EventStatus]:
        before = decode_cursor(cursor, int)[0] if cursor else None
        async with databases.coordinator.connection() as connection:
            found = await status.events(
                connection, state=state, entity=entity, before=before, limit=limit + 1
            )
        return page_of(found, limit, lambda event: (event.position,))

    @router.get(
        "/events/{event_id}",
        summary="One event with its readers and its timeline",
        tags=["events"],
        responses=problem_responses(404, 503),
    )
    async def get_event(event_id: int) -> status.EventDetail:
        async with databases.coordinator.connection() as connection:
            return await status.event(connection, event_id)

    @router.get(
        "/events/{event_id}/payloads",
        summary="The payloads of an event",
        tags=["events"],
        responses=problem_responses(422, 503),
    )
    async def list_payloads(
        event_id: int,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: str | None = None,
    ) -> Page[status.PayloadStatus]:
        after = decode_cursor(cursor, int)[0] if cursor else 0
        async with databases.writer.connection() as connection:
            found = await status.payloads(connection, event_id, after=after, limit=limit + 1)
        return page_of(found, limit, lambda payload: (payload.sequence,))

    @router.post(
        "/events/{event_id}/cancel",
        summary="Cancel an event that is not committed",
        status_code=202,
        tags=["events"],
        responses=problem_responses(404, 409, 503),
    )
    async def cancel_event(event_id: int, body: Reason | None = None) -> Accepted:
        async with databases.coordinator.connection() as connection:
            await operations.cancel(connection, event_id, (body or Reason()).reason)
        return Accepted(event_id=event_id, accepted="cancel")

    @router.post(
        "/events/{event_id}/retry",
        summary="Try a parked event, or a refused rollback, again",
        status_code=202,
        tags=["events"],
        responses=problem_responses(404, 503),
    )
    async def retry_event(event_id: int) -> Accepted:
        async with databases.coordinator.connection() as connection:
            await operations.retry(connection, event_id)
        return Accepted(event_id=event_id, accepted="retry")

    @router.get("/readers", summary="The readers and how far they are", tags=["events"])
    async def list_readers() -> list[status.ReaderStatus]:
        async with databases.coordinator.connection() as connection:
            return await status.readers(connection)


def _add_change_route(
    router: APIRouter, databases: GatewayDatabases, is_stopping: Callable[[], bool]
) -> None:
    @router.get(
        "/changes",
        summary="What the Reader finishes, as server-sent events",
        tags=["events"],
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def stream_changes(
        request: Request,
        entity: str | None = None,
        after: Annotated[int | None, Query(ge=0)] = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> StreamingResponse:
        if last_event_id is not None and last_event_id.isdigit():
            after = int(last_event_id)

        async def is_gone() -> bool:
            return is_stopping() or await request.is_disconnected()

        stream = changes(databases.reader, after, entity, is_gone)
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )


@asynccontextmanager
async def open_databases(
    writer: str, coordinator: str, reader: str, *, size: int = 10
) -> AsyncIterator[GatewayDatabases]:
    """Open the pools; close them at the end."""
    pools = [
        AsyncConnectionPool(
            dsn,
            kwargs={"application_name": "postroad gateway"},
            min_size=1,
            max_size=size,
            timeout=10,
            # Given up soon, and tried anew by the next request: its own pauses double without end.
            reconnect_timeout=RECONNECT_SECONDS,
            check=AsyncConnectionPool.check_connection,
            open=False,
        )
        for dsn in (writer, coordinator, reader)
    ]
    try:
        for pool in pools:
            await pool.open()
        yield GatewayDatabases(*pools)
    finally:
        for pool in pools:
            await pool.close()
