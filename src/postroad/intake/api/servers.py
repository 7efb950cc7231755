"""Routes of servers: create, read, update, delete; test, pause, resume, trust, browse."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from postroad.intake import operations, probe, status
from postroad.intake.api.shapes import (
    Entry,
    HostKeyIn,
    ServerChange,
    ServerIn,
    ServerOut,
    TestOut,
)

__all__ = ["router"]

router = APIRouter(prefix="/servers", tags=["servers"])

ServerId = Annotated[int, Path(ge=1, lt=2**31)]


@router.get("", response_model=list[ServerOut])
def list_servers(request: Request) -> Any:
    """Return every server, by name."""
    with request.app.state.tools.pool.connection() as connection:
        return status.servers(connection)


@router.post("", response_model=ServerOut, status_code=201)
def create_server(request: Request, body: ServerIn) -> Any:
    """Add a server; the next look of the schedule finds its files."""
    tools = request.app.state.tools
    with tools.pool.connection() as connection:
        return operations.create_server(
            connection, tools.vault, body.credentials.opened(), body.values()
        )


@router.get("/{server_id}", response_model=ServerOut)
def read_server(request: Request, server_id: ServerId) -> Any:
    """Return one server."""
    with request.app.state.tools.pool.connection() as connection:
        return status.server(connection, server_id)


@router.patch("/{server_id}", response_model=ServerOut)
def change_server(request: Request, server_id: ServerId, body: ServerChange) -> Any:
    """Change what is given; a changed login is tried at once."""
    tools = request.app.state.tools
    credentials = body.credentials.opened() if body.credentials else None
    with tools.pool.connection() as connection:
        return operations.change_server(
            connection, tools.vault, server_id, body.values(), credentials
        )


@router.delete("/{server_id}", status_code=204)
def delete_server(request: Request, server_id: ServerId) -> None:
    """Remove a server with the journal of its files; what is in the store stays."""
    with request.app.state.tools.pool.connection() as connection:
        operations.delete_server(connection, server_id)


@router.post("/{server_id}/pause", response_model=ServerOut)
def pause_server(request: Request, server_id: ServerId) -> Any:
    """Neither look at the server nor begin transfers from it."""
    with request.app.state.tools.pool.connection() as connection:
        return operations.pause_server(connection, server_id)


@router.post("/{server_id}/resume", response_model=ServerOut)
def resume_server(request: Request, server_id: ServerId) -> Any:
    """Go on with a paused server."""
    with request.app.state.tools.pool.connection() as connection:
        return operations.resume_server(connection, server_id)


@router.post("/{server_id}/trust", response_model=ServerOut)
def trust_host_key(request: Request, server_id: ServerId, body: HostKeyIn | None = None) -> Any:
    """Trust the host key that the server showed, or a given one, and go on."""
    with request.app.state.tools.pool.connection() as connection:
        return operations.trust_host_key(connection, server_id, body.host_key if body else None)


@router.post("/{server_id}/test", response_model=TestOut)
async def test_server(request: Request, server_id: ServerId) -> Any:
    """Log in and look into the folder; nothing is imported."""
    return await probe.try_server(request.app.state.tools.engine, server_id)


@router.get("/{server_id}/browse", response_model=list[Entry])
async def browse_folder(
    request: Request,
    server_id: ServerId,
    path: Annotated[str | None, Query(max_length=4096, pattern=r"^[^\x00]+$")] = None,
) -> Any:
    """List a folder of the server, by default the watched one."""
    return await probe.browse(request.app.state.tools.engine, server_id, path)
