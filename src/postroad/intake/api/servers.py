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
from postroad.intake.api.tools import ask, tools

router = APIRouter(prefix="/servers", tags=["servers"])

ServerId = Annotated[int, Path(ge=1, lt=2**31)]


@router.get("", response_model=list[ServerOut])
def list_servers(request: Request) -> Any:
    """Return every server, by name."""
    return ask(request, status.servers)


@router.post("", response_model=ServerOut, status_code=201)
def create_server(request: Request, body: ServerIn) -> Any:
    """Add a server; the next scheduled scan finds its files."""
    vault, credentials = tools(request).vault, body.credentials.opened()
    return ask(request, operations.create_server, vault, credentials, body.values())


@router.get("/{server_id}", response_model=ServerOut)
def read_server(request: Request, server_id: ServerId) -> Any:
    """Return one server."""
    return ask(request, status.server, server_id)


@router.patch("/{server_id}", response_model=ServerOut)
def change_server(request: Request, server_id: ServerId, body: ServerChange) -> Any:
    """Change the given settings; the server is scanned immediately."""
    vault = tools(request).vault
    credentials = body.credentials.opened() if body.credentials else None
    return ask(request, operations.change_server, vault, server_id, body.values(), credentials)


@router.delete("/{server_id}", status_code=204)
def delete_server(request: Request, server_id: ServerId) -> None:
    """Remove a server with the journal of its files; the objects in the store stay."""
    ask(request, operations.delete_server, server_id)


@router.post("/{server_id}/pause", response_model=ServerOut)
def pause_server(request: Request, server_id: ServerId) -> Any:
    """Stop scans and new transfers of the server."""
    return ask(request, operations.pause_server, server_id)


@router.post("/{server_id}/resume", response_model=ServerOut)
def resume_server(request: Request, server_id: ServerId) -> Any:
    """Resume a paused server."""
    return ask(request, operations.resume_server, server_id)


@router.post("/{server_id}/trust", response_model=ServerOut)
def trust_host_key(request: Request, server_id: ServerId, body: HostKeyIn | None = None) -> Any:
    """Trust the host key that the server showed, or a given one, and resume the server."""
    return ask(request, operations.trust_host_key, server_id, body.host_key if body else None)


@router.post("/{server_id}/test", response_model=TestOut)
async def test_server(request: Request, server_id: ServerId) -> Any:
    """Log in and list the folder; nothing is imported."""
    return await probe.try_server(tools(request).engine, server_id)


@router.get("/{server_id}/browse", response_model=list[Entry])
async def browse_folder(
    request: Request,
    server_id: ServerId,
    path: Annotated[str | None, Query(max_length=4096, pattern=r"^[^\x00]+$")] = None,
) -> Any:
    """List a folder of the server, by default the watched one."""
    return await probe.browse(tools(request).engine, server_id, path)
