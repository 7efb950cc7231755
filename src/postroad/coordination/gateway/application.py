"""The Gateway's application: fixed routes, and those generated for each entity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.responses import StreamingResponse

from postroad.coordination import status
from postroad.coordination.gateway.changes import changes
from postroad.coordination.gateway.entity_routes import add_entity_routes
from postroad.coordination.gateway.event_routes import MAX_ID, add_event_routes, check_entity
from postroad.coordination.gateway.progress import wait_for_event
from postroad.coordination.gateway.shapes import Shape
from postroad.postgres.connections import Pool, open_async_pool
from postroad.web.application import BEARER, prepare
from postroad.web.errors import RequestInvalid
from postroad.web.limits import BodyLimit, TokenCheck
from postroad.web.problems import problem_responses

PREFIX = "/coordination/v1"
MAX_BODY_BYTES = 1_000_000
AFTER_TIMEOUT_DEFAULT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class GatewayDatabases:
    """Pools to the three databases; their owner opens and closes them."""

    writer: Pool
    coordinator: Pool
    reader: Pool


def make_application(
    databases: GatewayDatabases,
    shapes: list[Shape],
    replicas: list[Shape] | None = None,
    *,
    after_timeout: timedelta = AFTER_TIMEOUT_DEFAULT,
    token: str,
    is_stopping: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Build the application; every request must carry the token.

    `shapes` are the Writer's entities, `replicas` the Reader's tables of them, where known.
    `is_stopping` ends the streams of changes, which otherwise last as long as their clients.
    """
    app = prepare(
        FastAPI(
            title="Postroad coordination",
            version="1",
            openapi_url=f"{PREFIX}/openapi.json",
            docs_url=f"{PREFIX}/docs",
            redoc_url=None,
            # Accepts a body without a Content-Type: the token, not the browser, authorises.
            strict_content_type=False,
        )
    )
    app.add_middleware(BodyLimit, limit_bytes=MAX_BODY_BYTES)
    app.add_middleware(TokenCheck, token=token, prefix=PREFIX)
    guards = [Depends(_refuse_unknown_parameters), Depends(BEARER)]
    router = APIRouter(prefix=PREFIX, dependencies=guards)

    async def wait(after: int | None) -> None:
        if after is not None:
            await wait_for_event(after, databases.writer, databases.reader, after_timeout)

    add_event_routes(router, databases.writer, databases.coordinator, after_timeout)
    _add_change_route(router, databases, is_stopping)

    @router.get("/entities", summary="The entities that are tracked", tags=["entities"])
    async def list_entities() -> list[dict[str, Any]]:
        async with databases.writer.connection() as connection:
            return await status.entities(connection)

    copies = {copy.name: copy for copy in replicas or ()}
    for shape in shapes:
        replica = copies.get(shape.name)
        add_entity_routes(router, shape, replica, databases.writer, databases.reader, wait)
    app.include_router(router)
    return app


async def _refuse_unknown_parameters(request: Request) -> None:
    """Refuse a parameter that does not exist, instead of returning unfiltered rows."""
    route = request.scope.get("route")
    dependant = getattr(route, "dependant", None)
    if dependant is None:
        return
    known = {field.alias for field in dependant.query_params}
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise RequestInvalid(
            f"unknown parameter {unknown[0][:80]!r}",
            hint=f"use: {', '.join(sorted(known))}" if known else "leave it out",
        )


def _add_change_route(
    router: APIRouter, databases: GatewayDatabases, is_stopping: Callable[[], bool]
) -> None:
    @router.get(
        "/changes",
        summary="What the Reader finishes, as server-sent events",
        tags=["events"],
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}, **problem_responses(422, 503)},
    )
    async def stream_changes(
        request: Request,
        entity: str | None = None,
        after: Annotated[int | None, Query(ge=0, le=MAX_ID)] = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> StreamingResponse:
        await check_entity(databases.writer, entity)
        if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit():
            after = min(int(last_event_id[:20]), MAX_ID)

        async def is_gone() -> bool:
            return is_stopping() or await request.is_disconnected()

        stream = changes(databases.reader, after, entity, is_gone)
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )


@asynccontextmanager
async def open_databases(*dsns: str) -> AsyncIterator[GatewayDatabases]:
    """Open the pools of Writer, Coordinator and Reader; close them at the end."""
    async with AsyncExitStack() as stack:
        pools = [
            await stack.enter_async_context(
                await open_async_pool(dsn, application_name="postroad gateway")
            )
            for dsn in dsns
        ]
        yield GatewayDatabases(*pools)
