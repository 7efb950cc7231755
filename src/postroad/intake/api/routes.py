"""Routes: servers, files, transfers. The list of files is derived; see `application`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request

from postroad.intake import operations, probe, status
from postroad.intake.api import shapes
from postroad.intake.resources import FILES, SERVERS, TRANSFERS
from postroad.operate.http import model_of

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
    """Call a function of `status` or `operations` in a transaction of its own."""
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
    """Trust the host key that the server showed, or a given one, and resume the server."""
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
    """Retry, skip or reimport several files; returns the ids of those that were changed."""
    return (await ask(request, getattr(operations, verb), body.ids))["ids"]


@files.get("/transfers", response_model=list[Transfer])
async def list_transfers(request: Request) -> Any:
    """Return the running transfers with the bytes done."""
    return await ask(request, TRANSFERS.all)


@files.get("/counts", response_model=dict[str, int])
async def count_files(request: Request) -> Any:
    """Return the number of files by status."""
    return await ask(request, status.counts)
