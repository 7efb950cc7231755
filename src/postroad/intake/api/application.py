"""The application: routes below /intake/v1, behind the token. The lists are derived."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request

from postroad import __version__
from postroad.intake import operations, probe, status
from postroad.intake.api import shapes
from postroad.intake.context import IntakeContext
from postroad.intake.notice import create_queues
from postroad.intake.resources import FILES, SERVERS, TRANSFERS
from postroad.operate import Page, Resource
from postroad.operate.http import add_list, model_of
from postroad.postgres import open_async_pool
from postroad.web.application import BEARER, prepare
from postroad.web.limits import BodyLimit, TokenCheck
from postroad.web.problems import problem_responses

PREFIX = "/intake/v1"
MAX_BODY_BYTES = 256 * 1024

servers = APIRouter(prefix="/servers", tags=["servers"])
files = APIRouter(tags=["files"])

Server: Any = model_of(SERVERS)
File: Any = model_of(FILES)
Transfer: Any = model_of(TRANSFERS)
ServerId = Annotated[int, Path(ge=1, lt=2**31)]
FileId = Annotated[int, Path(ge=1, lt=2**63)]
Verb = Literal["retry", "skip", "reimport"]


async def ask(
    request: Request, call: Callable[..., Awaitable[Any]], *args: Any, **options: Any
) -> Any:
    """Call a function of `status` or `operations` in a separate transaction."""
    async with request.app.state.pool.connection() as connection:
        return await call(connection, *args, **options)


@servers.post("", response_model=Server, status_code=201)
async def create_server(request: Request, body: shapes.ServerIn) -> Any:
    """Add a server; the next scheduled scan finds its files."""
    vault, credentials = request.app.state.vault, body.credentials.opened()
    return await ask(request, operations.create_server, vault, credentials, body.values())


@servers.get("/{server_id}", response_model=Server)
async def read_server(request: Request, server_id: ServerId) -> Any:
    """Return one server."""
    return await ask(request, status.server, server_id)


@servers.patch("/{server_id}", response_model=Server)
async def change_server(request: Request, server_id: ServerId, body: shapes.ServerChange) -> Any:
    """Change the given settings; the server is scanned immediately."""
    credentials = body.credentials.opened() if body.credentials else None
    given = request.app.state.vault, str(server_id), body.values(), credentials
    return await ask(request, operations.change_server, *given)


@servers.delete("/{server_id}", status_code=204)
async def delete_server(request: Request, server_id: ServerId) -> None:
    """Remove a server with the journal of its files; the objects in the store stay."""
    await ask(request, operations.delete_server, str(server_id))


@servers.post("/{server_id}/pause", response_model=Server)
async def pause_server(request: Request, server_id: ServerId) -> Any:
    """Stop scans and new transfers of the server."""
    return await ask(request, operations.pause_server, str(server_id))


@servers.post("/{server_id}/resume", response_model=Server)
async def resume_server(request: Request, server_id: ServerId) -> Any:
    """Resume a paused server."""
    return await ask(request, operations.resume_server, str(server_id))


@servers.post("/{server_id}/trust", response_model=Server)
async def trust_host_key(
    request: Request, server_id: ServerId, body: shapes.HostKeyIn | None = None
) -> Any:
    """Trust the host key that the server presented, or a given one, and resume the server."""
    key = body.host_key if body else None
    return await ask(request, operations.trust_host_key, str(server_id), host_key=key)


@servers.post("/{server_id}/test", response_model=shapes.TestOut)
async def test_server(request: Request, server_id: ServerId) -> Any:
    """Log in and list the folder; nothing is imported."""
    return await probe.try_server(request.app.state.engine, server_id)


@servers.get("/{server_id}/browse", response_model=list[shapes.Entry])
async def browse_folder(
    request: Request,
    server_id: ServerId,
    path: Annotated[str | None, Query(max_length=4096, pattern=r"^[^\x00]+$")] = None,
) -> Any:
    """List a folder of the server, by default the watched one."""
    return await probe.browse(request.app.state.engine, server_id, path)


@files.get("/files/{file_id}", response_model=File)
async def read_file(request: Request, file_id: FileId) -> Any:
    """Return one file."""
    return await ask(request, status.file, file_id)


@files.get("/files/{file_id}/history", response_model=list[shapes.HistoryOut])
async def read_history(request: Request, file_id: FileId) -> Any:
    """Return the events of a file."""
    return (await ask(request, status.file, file_id))["history"]


@files.post("/files/{file_id}/{verb}", response_model=File)
async def change_file(request: Request, file_id: FileId, verb: Verb) -> Any:
    """Retry, skip or reimport a file; one in another state is returned unchanged."""
    await ask(request, getattr(operations, verb), [file_id])
    return await ask(request, status.file, file_id)


@files.post("/files/{verb}", response_model=list[int])
async def change_files(request: Request, verb: Verb, body: shapes.FilesIn) -> Any:
    """Retry, skip or reimport several files; returns the ids of the changed ones."""
    return (await ask(request, getattr(operations, verb), body.ids))["ids"]


@files.get("/transfers", response_model=list[Transfer])
async def list_transfers(request: Request) -> Any:
    """Return the running transfers with the bytes done."""
    return await ask(request, TRANSFERS.all)


@files.get("/counts", response_model=dict[str, int])
async def count_files(request: Request) -> Any:
    """Return the number of files by status."""
    return await ask(request, status.counts)


def create_api(context: IntakeContext, token: str) -> FastAPI:
    """Create the application; callers must send the token."""

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
