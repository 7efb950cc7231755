"""The tasks of the intake, by the names of the original design.

```
beat ──> discover_all_servers ──> discover_files_on_server ──> download_file ──┐
                                                                 │             │ streamed
                                              temporary file: upload_to_minio  │
                                                                 └──────> notify_and_cleanup
beat ──> reconcile_stuck_files ──> tasks for all files that wait
```

Arguments are ids only, and the journal decides what a task does: one that is delivered twice does
nothing the second time, and a lost one is replaced by `reconcile_stuck_files`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from celery import Task, shared_task

from postroad.intake.context import IntakeContext
from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.errors import SourceError
from postroad.intake.notice import notify
from postroad.intake.transfer import transfer, upload
from postroad.intake.work import Work, abort_orphans, dispatch, reconcile

__all__ = [
    "abort_orphaned_uploads", "discover_all_servers", "discover_files_on_server", "download_file",
    "notify_and_cleanup", "reconcile_stuck_files", "upload_to_minio",
]  # fmt: skip


def _task(step: Callable[..., Coroutine[Any, Any, tuple[Any, Work]]]) -> Any:
    """Convert a step to a task; the step returns its result and the work for further tasks."""

    @functools.wraps(step)
    def run(self: Task, *ids: int) -> Any:
        context = getattr(self.app, "intake", None)
        if not isinstance(context, IntakeContext):
            raise TypeError("this Celery application has no intake: create it with create_app()")
        result, work = context.run(lambda engine: step(engine, *ids))
        steps = discover_files_on_server, download_file, upload_to_minio, notify_and_cleanup
        for task, batches in zip(steps, work, strict=True):
            for batch in batches:
                task.apply_async(args=batch)
        return result

    # Acknowledge late, so that the task of a killed worker is redelivered.
    late = {"acks_late": True, "reject_on_worker_lost": True}
    return shared_task(bind=True, ignore_result=True, **late)(run)


@_task
async def discover_all_servers(engine: Engine) -> tuple[int, Work]:
    """Start a scan of every server that is due; returns their number."""
    due = [[row["due_servers"]] for row in await engine.journal.select("due_servers")]
    return len(due), Work(scans=due)


@_task
async def discover_files_on_server(
    engine: Engine, server_id: int
) -> tuple[dict[str, Any] | None, Work]:
    """Scan one server and start the transfers of new files; returns the report or the problem."""
    try:
        report = await discover(engine, server_id)
    except SourceError as failure:
        return {"problems": [failure.message]}, Work()
    return report, Work(transfers=await dispatch(engine, server_id))


@_task
async def download_file(engine: Engine, *file_ids: int) -> tuple[list[int], Work]:
    """Fetch files of one server, into the store or into temporary files."""
    done = await transfer(engine, list(file_ids))
    rows = await engine.journal.rows(
        "select f.id, f.server_id, f.status from intake.imported_files f where f.id = any (%s)",
        list(file_ids),
    )
    transfers = await dispatch(engine, *{row["server_id"] for row in rows})
    uploads = [[row["id"]] for row in rows if row["status"] == "downloaded"]
    stored = [row["id"] for row in rows if row["status"] == "uploaded_to_minio"]
    return done, Work((), transfers, uploads, [stored] if stored else [])


@_task
async def upload_to_minio(engine: Engine, *file_ids: int) -> tuple[list[int], Work]:
    """Send temporary files to the store."""
    done = await upload(engine, list(file_ids))
    return done, Work(notices=[done] if done else [])


@_task
async def notify_and_cleanup(engine: Engine, *file_ids: int) -> tuple[list[int], Work]:
    """Complete files, post one notice for each, then clean up at the source."""
    return await notify(engine, list(file_ids)), Work()


@_task
async def reconcile_stuck_files(engine: Engine) -> tuple[int, Work]:
    """Resume files that no worker holds; returns the number of started tasks."""
    work = await reconcile(engine)
    return len(work.transfers) + len(work.uploads) + len(work.notices), work


@_task
async def abort_orphaned_uploads(engine: Engine) -> tuple[int, Work]:
    """Abort old uploads at the store that belong to no file; returns their number."""
    return await abort_orphans(engine), Work()
