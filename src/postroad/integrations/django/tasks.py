"""A backend for Django Tasks: of Django 6, or of the package django-tasks.

```python
TASKS = {"default": {"BACKEND": "postroad.integrations.django.tasks.PostroadBackend"}}
```

**What it promises.** `enqueue` posts in the current transaction of Django's connection: the task
exists if that commits. It runs at least once; one that fails is run again after the backoff of the
consumer and is dead-lettered after its last attempt. Results are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import import_string
from psycopg.conninfo import make_conninfo

from postroad.bus import LeasedMessage, Park, Worker
from postroad.integrations.django import bus

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskResult, TaskResultStatus
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:  # before Django 6
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskResult, TaskResultStatus
    from django_tasks.signals import task_enqueued, task_finished, task_started


class PostroadBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Posts tasks to the queue `django_<queue name>`, of the database in `OPTIONS["DATABASE"]`.

    Positive priorities are `high` on the bus, negative ones `low`.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    @property
    def database(self) -> str:
        """The alias of the database."""
        return str(self.options.get("DATABASE", DEFAULT_DB_ALIAS))

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Post a task in the current transaction. Raises QueueNotFound, WrongPayload."""
        self.validate_task(task)
        data = {"task": task.module_path, "args": list(args), "kwargs": dict(kwargs)}
        priority = "high" if task.priority > 0 else "low" if task.priority < 0 else "normal"
        iid = bus(self.database).post(
            f"django_{task.queue_name}",
            data,
            headers={"priority": priority},
            delayed_until=task.run_after,
        )
        result = self._result(task, iid, data)
        task_enqueued.send(type(self), task_result=result)
        return result

    def create_queues(self) -> None:
        """Create the queues that are missing."""
        own = bus(self.database)
        existing = {each.queue for each in own.queues()}
        for queue in sorted({f"django_{name}" for name in self.queues} - existing):
            own.create_queue(queue, payload="jsonb")

    def worker(self, concurrency: int = 1) -> Worker:
        """Return a worker for the tasks, which run in threads of this process."""
        connections[self.database].ensure_connection()
        info = connections[self.database].connection.info
        worker = Worker(make_conninfo("", **info.get_parameters(), password=info.password))
        for name in sorted(self.queues):
            worker.handler(f"django_{name}", mode="lease", concurrency=concurrency)(self._run)
        return worker

    def _run(self, message: LeasedMessage) -> None:
        data = message.data
        task = import_string(data["task"])
        if not isinstance(task, Task):
            raise Park(f"{data['task']} is not a task")
        now = timezone.now()
        result = replace(
            self._result(task, message.iid, data),
            enqueued_at=message.added,
            started_at=now,
            last_attempted_at=now,
            status=TaskResultStatus.RUNNING,
            worker_ids=["postroad"] * message.attempt,
        )
        context = [TaskContext(task_result=result)] if task.takes_context else []
        # Each thread has connections of its own, which the server may have closed meanwhile.
        close_old_connections()
        task_started.send(type(self), task_result=result)
        status = TaskResultStatus.FAILED
        try:
            task.call(*context, *data["args"], **data["kwargs"])
            status = TaskResultStatus.SUCCESSFUL
        finally:
            ended = replace(result, status=status, finished_at=timezone.now())
            task_finished.send(type(self), task_result=ended)
            close_old_connections()

    def _result(self, task: Any, iid: str, data: Mapping[str, Any]) -> Any:
        return TaskResult(
            task=task,
            id=iid,
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=data["args"],
            kwargs=data["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
