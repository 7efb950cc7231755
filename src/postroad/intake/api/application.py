"""The application: routes below /intake/v1, behind the token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, FastAPI

from postroad import __version__
from postroad.intake.api.routes import files, servers
from postroad.intake.context import IntakeContext
from postroad.intake.notice import create_queues
from postroad.intake.resources import FILES, SERVERS
from postroad.operate import Page, Resource
from postroad.operate.http import add_list
from postroad.postgres import open_async_pool
from postroad.web.application import BEARER, prepare
from postroad.web.limits import BodyLimit, TokenCheck
from postroad.web.problems import problem_responses

PREFIX = "/intake/v1"
MAX_BODY_BYTES = 256 * 1024


def create_api(context: IntakeContext, token: str) -> FastAPI:
    """Make the application; callers must send the token."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = context.open_engine("web")
        await create_queues(engine)
        pool = await open_async_pool(context.dsn, application_name="postroad intake web")
        async with pool:
            app.state.pool, app.state.engine, app.state.vault = pool, engine, context.vault
            yield
        await engine.close()

    app = FastAPI(
        title="Postroad intake",
        version=__version__,
        lifespan=lifespan,
        docs_url="/intake/docs",
        openapi_url="/intake/openapi.json",
        redoc_url=None,
    )
    problems = problem_responses(401, 404, 409, 422, 503)
    router = APIRouter(prefix=PREFIX, dependencies=[Depends(BEARER)], responses=problems)

    async def read(resource: Resource, *given: Any, **paging: Any) -> Page:
        async with app.state.pool.connection() as connection:
            return await resource.page(connection, *given, **paging)

    for resource, routes in ((SERVERS, servers), (FILES, files)):
        lists = APIRouter(tags=[resource.plural])
        path, is_array = f"/{resource.plural}", resource is SERVERS
        add_list(lists, path, resource, partial(read, resource), is_array=is_array)
        router.include_router(lists)
        router.include_router(routes)
    app.include_router(router)
    app.add_middleware(BodyLimit, limit_bytes=MAX_BODY_BYTES)
    app.add_middleware(TokenCheck, token=token, prefix=PREFIX)
    return prepare(app)
