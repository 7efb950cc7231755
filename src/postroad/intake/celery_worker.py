"""The Celery application of the intake: broker, schedule, and the processes of its workers.

For Celery's own command line (`celery -A postroad.intake.celery_worker:app worker`) the name `app`
is made from the environment when it is first used, not when the module is imported.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from billiard.process import current_process
from celery import Celery
from celery.signals import beat_embedded_init, worker_process_shutdown
from psycopg.conninfo import conninfo_to_dict

from postroad.broker import register
from postroad.intake.context import IntakeContext
from postroad.settings.intake import IntakeSettings

logger = logging.getLogger(__name__)

QUEUE = "intake"
TRANSFER_QUEUE = "intake_transfers"
ORPHANS_INTERVAL = timedelta(hours=1)
PR_SET_PDEATHSIG = 1


def broker_url(settings: IntakeSettings, dsn: str) -> str:
    """Return Celery's broker: the one that is set, otherwise the bus in the same database."""
    if settings.broker is not None:
        return settings.broker.get_secret_value()
    parts = {name: quote(str(one), safe="") for name, one in conninfo_to_dict(dsn).items()}
    login, name = parts.pop("user", ""), parts.pop("dbname", "")
    if password := parts.pop("password", None):
        # Programs that print a URL mask the password in this position.
        login += f":{password}"
    options = "&".join(f"{key}={one}" for key, one in parts.items())
    return f"mbus://{login}{'@' if login else ''}/{name}?{options}"


def create_app(context: IntakeContext) -> Celery:
    """Create the application; its tasks run with this context."""
    from postroad.intake import tasks

    register()
    settings = context.settings
    app = Celery("postroad.intake", broker=broker_url(settings, context.dsn))
    is_amqp = app.conf.broker_url.startswith(("amqp", "pyamqp"))
    transfers = tasks.download_file.name, tasks.upload_to_minio.name
    app.conf.update(
        task_default_queue=QUEUE,
        # Separate queues: transfers that take hours must not delay the scans of other servers.
        task_routes={name: {"queue": TRANSFER_QUEUE} for name in transfers},
        accept_content=["json"],
        timezone="UTC",
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # RabbitMQ closes the channel of a task that runs longer than its consumer_timeout.
        broker_channel_error_retry=True,
        # With RabbitMQ a task counts as sent when the broker has confirmed it.
        broker_transport_options={"confirm_publish": True} if is_amqp else {},
        beat_schedule=_schedule(settings, tasks),
        beat_max_loop_interval=1.0,
    )
    app.intake = context
    app.set_default()
    app.finalize()
    # Producers that use the names of the original design find the same tasks.
    for name in tasks.__all__:
        app.tasks[name] = getattr(tasks, name)
    worker_process_shutdown.connect(_close, weak=False, dispatch_uid="postroad.intake")
    beat_embedded_init.connect(_end_beat_with_worker, weak=False, dispatch_uid="postroad.intake")
    return app


def _schedule(settings: IntakeSettings, tasks: Any) -> dict[str, Any]:
    every = {
        tasks.discover_all_servers: settings.discover_interval,
        tasks.reconcile_stuck_files: settings.reconcile_interval,
        tasks.abort_orphaned_uploads: ORPHANS_INTERVAL,
    }
    return {
        task.name.rpartition(".")[2]: {
            "task": task.name,
            "schedule": interval,
            # A missed beat is not repeated: the next one does its work.
            "options": {"expires": max(interval.total_seconds(), 10)},
        }
        for task, interval in every.items()
    }


def run_workers(app: Celery, level: str, workers: Mapping[str, Mapping[str, Any]]) -> int:
    """Run Celery workers by name until they end; return the exit status.

    The first runs in this process and a second one in a child. When one of them ends the other one
    is stopped, because a supervisor sees only this process.
    """
    (own, *others) = workers.items()
    if not others:
        return _run_worker(app, level, *own)
    parent = os.getpid()
    child = os.fork()
    if not child:
        # No connection is open yet.
        status = 1
        try:
            _end_with_parent(parent)
            status = _run_worker(app, level, *others[0])
        except BaseException:
            logger.exception("worker_failed")
        finally:
            os._exit(status)
    is_ending = threading.Event()
    ended: list[int] = []

    def watch() -> None:
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        if not is_ending.is_set():
            logger.error("worker_ended", extra={"worker": others[0][0], "status": ended[0]})
            os.kill(parent, signal.SIGTERM)

    watcher = threading.Thread(target=watch, name="other worker", daemon=True)
    watcher.start()
    try:
        status = _run_worker(app, level, *own)
    finally:
        is_ending.set()
        if not ended:
            os.kill(child, signal.SIGTERM)
        watcher.join()
    return status or int(ended[0] != 0)


def _run_worker(app: Celery, level: str, name: str, options: Mapping[str, Any]) -> int:
    node = f"{name}-{os.getpid()}@{socket.gethostname()}"
    worker = app.Worker(hostname=node, loglevel=level.upper(), without_mingle=True, **options)
    worker.start()
    return int(worker.exitcode or 0)


def _end_with_parent(parent: int) -> None:
    """Have this process terminated when its parent dies, even by `kill -9`."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _end_beat_with_worker(**_: Any) -> None:
    _end_with_parent(current_process()._parent_pid)


def _close(**_: Any) -> None:
    from celery import current_app

    context = getattr(current_app, "intake", None)
    if isinstance(context, IntakeContext):
        context.close()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    from postroad.broker.address import database_of
    from postroad.postgres.server_user import data_folder_default, make_data_folder
    from postroad.settings_sources import load
    from postroad.vault import open_vault

    settings = load().settings
    folder = (settings.data_folder or data_folder_default()).absolute()
    vault = open_vault(settings.vault, lambda: make_data_folder(folder))
    is_pooled = settings.database.is_pooled
    context = IntakeContext(database_of("mbus:///"), settings.intake, vault, folder, is_pooled)
    globals()["app"] = create_app(context)
    return globals()["app"]
