"""The tasks of the intake, by the names of the original design.

```
beat ──> discover_all_servers ──> discover_files_on_server ──> download_file ──┐
                                                                 │             │ streamed
                                              temporary file: upload_to_minio  │
                                                                 └──────> notify_and_cleanup
beat ──> reconcile_stuck_files ──> whatever waits for a task
```

Arguments are ids and nothing else. A task is a wake-up: the journal decides what is done, so a task
that comes twice does nothing the second time, and one that is lost is made up for by
`reconcile_stuck_files`.
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

# Late: a worker that is killed gives its task back.
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
    """Let every server be looked at whose time has come; returns how many."""

    async def due(engine: Engine) -> list[int]:
        return [row["due_servers"] for row in await engine.journal.select("due_servers")]

    servers = _context(self).run(due)
    for server_id in servers:
        discover_files_on_server.apply_async(args=[server_id])
    return len(servers)


@_task
def discover_files_on_server(self: Task, server_id: int) -> dict[str, Any] | None:
    """Look at one server, and let what is new be fetched; returns the report.

    A server that cannot be used is noted, and looked at again after a growing pause.
    """

    async def look(engine: Engine) -> tuple[dict[str, Any] | None, Work]:
        try:
            report = await discover(engine, server_id)
        except SourceError as failure:
            return {"problems": [failure.message]}, Work()
        return report, await dispatch(engine, server_id)

    report, work = _context(self).run(look)
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
    """Complete files, tell of each once, then do what is to be done at the source."""
    return _context(self).run(lambda engine: notify(engine, list(file_ids)))


@_task
def reconcile_stuck_files(self: Task) -> int:
    """Take up again what nobody works on; returns how many tasks that made."""
    work = _context(self).run(reconcile)
    _submit(work)
    return len(work.transfers) + len(work.uploads) + len(work.notices)


@_task
def abort_orphaned_uploads(self: Task) -> int:
    """Abort old uploads at the store that belong to no file; returns how many."""
    return _context(self).run(abort_orphans)
