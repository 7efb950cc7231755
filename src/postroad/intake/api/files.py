"""Routes of files: filter, page, history, retry, skip, reimport, progress of transfers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request

from postroad.intake import operations, status
from postroad.intake.api.shapes import FileOut, FilesIn, HistoryOut, TransferOut
from postroad.intake.api.tools import ask
from postroad.web.cursors import decode_cursor
from postroad.web.pages import Page, page_of

router = APIRouter(tags=["files"])

FileId = Annotated[int, Path(ge=1, lt=2**63)]
Text = Annotated[str, Query(max_length=1000, pattern=r"^[^\x00]*$")]
Verb = Literal["retry", "skip", "reimport"]
if TYPE_CHECKING:
    Status = str
else:
    Status = Literal[status.FILE_STATUSES]


@router.get("/files", response_model=Page[FileOut])
def list_files(
    request: Request,
    status_: Annotated[Status | None, Query(alias="status")] = None,
    server: Text | None = None,
    name: Text | None = None,
    cursor: Text | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Any:
    """Return files, the latest first; `cursor` of an answer requests the next page."""
    before = decode_cursor(cursor, int)[0] if cursor else None
    wanted: dict[str, Any] = {"status": status_, "server": server, "name": name, "before": before}
    rows = ask(request, status.files, **wanted, limit=limit + 1)
    return page_of(rows, limit, lambda row: (row["id"],))


@router.get("/files/{file_id}", response_model=FileOut)
def read_file(request: Request, file_id: FileId) -> Any:
    """Return one file."""
    return ask(request, status.file, file_id)


@router.get("/files/{file_id}/history", response_model=list[HistoryOut])
def read_history(request: Request, file_id: FileId) -> Any:
    """Return the events of a file."""
    ask(request, status.file, file_id)
    return ask(request, status.history, file_id)


@router.post("/files/{file_id}/{verb}", response_model=FileOut)
def change_file(request: Request, file_id: FileId, verb: Verb) -> Any:
    """Retry, skip or reimport a file; one in another state is returned unchanged."""
    ask(request, getattr(operations, verb), [file_id])
    return ask(request, status.file, file_id)


@router.post("/files/{verb}", response_model=list[int])
def change_files(request: Request, verb: Verb, body: FilesIn) -> Any:
    """Retry, skip or reimport several files; returns the ids of those that were changed."""
    return ask(request, getattr(operations, verb), body.ids)


@router.get("/transfers", response_model=list[TransferOut])
def list_transfers(request: Request) -> Any:
    """Return the running transfers with the bytes done."""
    return ask(request, status.transfers)


@router.get("/counts", response_model=dict[str, int])
def count_files(request: Request) -> Any:
    """Return the number of files by status."""
    return ask(request, status.counts)
