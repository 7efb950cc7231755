"""The Gateway's application: fixed routes, and those generated for each entity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request

from postroad.coordination import status
from postroad.coordination.gateway.changes import add_change_route
from postroad.coordination.gateway.entity_routes import add_entity_routes
from postroad.coordination.gateway.event_routes import add_event_routes
from postroad.coordination.gateway.progress import wait_for_event
from postroad.coordination.gateway.shapes import Shape
from postroad.postgres.calls import value
from postroad.postgres.connections import Pool
from postroad.web.application import BEARER, prepare
from postroad.web.errors import RequestInvalid
from postroad.web.limits import BodyLimit, TokenCheck

PREFIX = "/coordination/v1"
MAX_BODY_BYTES = 1_000_000

_IS_ENTITY = 'select exists (select from coordination."AppEventType" t where t."Entity" = %s)'


def make_application(
    databases: Sequence[Pool],
    shapes: list[Shape],
    replicas: list[Shape],
    *,
    after_timeout: timedelta,
    token: str,
    is_stopping: Callable[[], bool],
) -> FastAPI:
    """Build the application; every request must carry the token.

    `databases` are those of Writer, Coordinator and Reader; `replicas` the Reader's tables, if they
    can be read. `is_stopping` ends the streams of changes, which otherwise last until their clients
    disconnect.
    """
    writer, coordinator, reader = databases
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
            await wait_for_event(after, writer, reader, after_timeout)

    async def check_entity(request: Request) -> None:
        """Refuse a filter by an entity that does not exist. Raises RequestInvalid."""
        entity = request.query_params.get("entity")
        if entity is None:
            return
        async with writer.connection() as connection:
            if "\x00" in entity or not await value(connection, _IS_ENTITY, entity):
                raise RequestInvalid(
                    f"no entity is called {entity[:80]!r}", hint=f"GET {PREFIX}/entities lists them"
                )

    add_event_routes(router, writer, coordinator, check_entity, after_timeout)
    add_change_route(router, reader, check_entity, is_stopping)

    @router.get("/entities", summary="The entities that are tracked", tags=["entities"])
    async def list_entities() -> list[dict[str, Any]]:
        async with writer.connection() as connection:
            return await status.entities(connection)

    copies = {copy.name: copy for copy in replicas}
    for shape in shapes:
        add_entity_routes(router, shape, copies.get(shape.name), writer, reader, wait)
    app.include_router(router)
    return app


async def _refuse_unknown_parameters(request: Request) -> None:
    """Refuse a parameter that does not exist, instead of returning unfiltered rows."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise RequestInvalid(
            f"unknown parameter {unknown[0][:80]!r}",
            hint=f"use: {', '.join(sorted(known))}" if known else "leave it out",
        )
