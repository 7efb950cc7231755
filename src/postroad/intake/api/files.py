"""Routes of files: filter, page, history, retry, skip, reimport, progress of transfers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request

from postroad.intake import operations, status
from postroad.intake.api.shapes import FileOut, FilesIn, HistoryOut, TransferOut
from postroad.web import Page, decode_cursor, page_of

__all__ = ["router"]

router = APIRouter(tags=["files"])

FileId = Annotated[int, Path(ge=1, lt=2**63)]
Status = Literal[
    "discovered",
    "downloading",
    "downloaded",
    "uploading_to_minio",
    "uploaded_to_minio",
    "notifying",
    "completed",
    "failed",
    "vanished",
    "superseded",
    "skipped",
]
Text = Annotated[str, Query(max_length=1000, pattern=r"^[^\x00]*$")]


@router.get("/files", response_model=Page[FileOut])
def list_files(
    request: Request,
    status_: Annotated[Status | None, Query(alias="status")] = None,
    server: Text | None = None,
    name: Text | None = None,
    cursor: Text | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Any:
    """Return files, the latest first; `cursor` of an answer asks for the next page."""
    before = decode_cursor(cursor, int)[0] if cursor else None
    with request.app.state.tools.pool.connection() as connection:
        rows = status.files(
            connection, status=status_, server=server, name=name, before=before, limit=limit + 1
        )
    return page_of(rows, limit, lambda row: (row["id"],))


@router.get("/files/{file_id}", response_model=FileOut)
def read_file(request: Request, file_id: FileId) -> Any:
    """Return one file."""
    with request.app.state.tools.pool.connection() as connection:
        return status.file(connection, file_id)


@router.get("/files/{file_id}/history", response_model=list[HistoryOut])
def read_history(request: Request, file_id: FileId) -> Any:
    """Return what happened to a file."""
    with request.app.state.tools.pool.connection() as connection:
        status.file(connection, file_id)
        return status.history(connection, file_id)


@router.post("/files/{file_id}/{verb}", response_model=FileOut)
def change_file(
    request: Request, file_id: FileId, verb: Literal["retry", "skip", "reimport"]
) -> Any:
    """Try a file again, leave it out, or fetch it anew; a file that cannot is returned as it is."""
    with request.app.state.tools.pool.connection() as connection:
        getattr(operations, verb)(connection, [file_id])
        return status.file(connection, file_id)


@router.post("/files/{verb}", response_model=list[int])
def change_files(
    request: Request, verb: Literal["retry", "skip", "reimport"], body: FilesIn
) -> Any:
    """The same for several files; returns the ids of those that were changed."""
    with request.app.state.tools.pool.connection() as connection:
        return getattr(operations, verb)(connection, body.ids)


@router.get("/transfers", response_model=list[TransferOut])
def list_transfers(request: Request) -> Any:
    """Return what moves now, with the bytes done."""
    with request.app.state.tools.pool.connection() as connection:
        return status.transfers(connection)


@router.get("/counts", response_model=dict[str, int])
def count_files(request: Request) -> Any:
    """Return how many files have each status."""
    with request.app.state.tools.pool.connection() as connection:
        return status.counts(connection)
