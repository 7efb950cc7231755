"""The tasks of the intake, by the names of the original design.

```
beat ──> discover_all_servers ──> discover_files_on_server ──> download_file ──┐
                                                                 │             │ streamed
                                              temporary file: upload_to_minio  │
                                                                 └──────> notify_and_cleanup
beat ──> reconcile_stuck_files ──> tasks for all files that wait
```

Arguments are ids only. The journal decides what a task does, so a task that is delivered twice does
nothing the second time, and a lost one is replaced by `reconcile_stuck_files`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import Task, shared_task

from postroad.intake.context import IntakeContext
from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.errors import SourceError
from postroad.intake.notice import notify
from postroad.intake.temporary import upload
from postroad.intake.transfer import transfer
from postroad.intake.work import Work, abort_orphans, dispatch, reconcile

__all__ = [
    "abort_orphaned_uploads",
    "discover_all_servers",
    "discover_files_on_server",
    "download_file",
    "notify_and_cleanup",
    "reconcile_stuck_files",
    "upload_to_minio",
]

logger = logging.getLogger(__name__)

# Late, so that the task of a killed worker is redelivered.
_OPTIONS: dict[str, Any] = {
    "bind": True,
    "acks_late": True,
    "reject_on_worker_lost": True,
    "ignore_result": True,
}


def _task(function: Callable[..., Any]) -> Any:
    """Make a function a task; Celery's own decorator has no types."""
    return shared_task(**_OPTIONS)(function)


def _context(task: Task) -> IntakeContext:
    context = getattr(task.app, "intake", None)
    if not isinstance(context, IntakeContext):
        raise TypeError("this Celery application has no intake: make it with create_app()")
    return context


def _submit(work: Work) -> None:
    for ids in work.transfers:
        download_file.apply_async(args=ids)
    for ids in work.uploads:
        upload_to_minio.apply_async(args=ids)
    for ids in work.notices:
        notify_and_cleanup.apply_async(args=ids)


@_task
def discover_all_servers(self: Task) -> int:
    """Start a scan of every server that is due; returns how many."""

    async def due(engine: Engine) -> list[int]:
        return [row["due_servers"] for row in await engine.journal.select("due_servers")]

    servers = _context(self).run(due)
    for server_id in servers:
        discover_files_on_server.apply_async(args=[server_id])
    return len(servers)


@_task
def discover_files_on_server(self: Task, server_id: int) -> dict[str, Any] | None:
    """Scan one server and start the transfers of new files; returns the report.

    A server that cannot be used is recorded and scanned again with backoff.
    """

    async def scan(engine: Engine) -> tuple[dict[str, Any] | None, Work]:
        try:
            report = await discover(engine, server_id)
        except SourceError as failure:
            return {"problems": [failure.message]}, Work()
        return report, await dispatch(engine, server_id)

    report, work = _context(self).run(scan)
    _submit(work)
    return report


@_task
def download_file(self: Task, *file_ids: int) -> list[int]:
    """Fetch files of one server, into the store or into temporary files."""

    async def fetch(engine: Engine) -> tuple[list[int], Work]:
        done = await transfer(engine, list(file_ids))
        rows = await engine.journal.rows(
            "select f.id, f.server_id, f.status from intake.imported_files f where f.id = any (%s)",
            list(file_ids),
        )
        work = Work()
        for server_id in {row["server_id"] for row in rows}:
            work.transfers += (await dispatch(engine, server_id)).transfers
        stored = [row["id"] for row in rows if row["status"] == "uploaded_to_minio"]
        work.notices += [stored] if stored else []
        work.uploads += [[row["id"]] for row in rows if row["status"] == "downloaded"]
        return done, work

    done, work = _context(self).run(fetch)
    _submit(work)
    return done


@_task
def upload_to_minio(self: Task, *file_ids: int) -> list[int]:
    """Send temporary files to the store."""
    done = _context(self).run(lambda engine: upload(engine, list(file_ids)))
    _submit(Work(notices=[done] if done else []))
    return done


@_task
def notify_and_cleanup(self: Task, *file_ids: int) -> list[int]:
    """Complete files, post one notice for each, then clean up at the source."""
    return _context(self).run(lambda engine: notify(engine, list(file_ids)))


@_task
def reconcile_stuck_files(self: Task) -> int:
    """Resume files that no worker holds; returns how many tasks that made."""
    work = _context(self).run(reconcile)
    _submit(work)
    return len(work.transfers) + len(work.uploads) + len(work.notices)


@_task
def abort_orphaned_uploads(self: Task) -> int:
    """Abort old uploads at the store that belong to no file; returns how many."""
    return _context(self).run(abort_orphans)
