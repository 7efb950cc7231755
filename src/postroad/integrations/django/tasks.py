"""A backend for Django Tasks: of Django 6, or of the package django-tasks.

```python
TASKS = {"default": {"BACKEND": "postroad.integrations.django.tasks.PostroadBackend"}}
```

**What it promises.** `enqueue` posts in the current transaction of Django's connection: the task
exists if that commits. It runs at least once; one that fails is run again after the backoff of the
consumer and is dead-lettered after its last attempt. Results are not stored; the signal
`task_finished` has the return value, or after the last attempt the error.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import import_string
from psycopg.conninfo import make_conninfo

from postroad.bus import LeasedMessage, Park, Worker
from postroad.integrations.django import bus

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:  # before Django 6
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.signals import task_enqueued, task_finished, task_started


class PostroadBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Posts tasks to the queue `<prefix>_<queue name>`.

    `OPTIONS["PREFIX"]` is `django` unless set; projects that share a database need different ones.
    `OPTIONS["DATABASE"]` is the alias of the database. Positive priorities are `high` on the bus,
    negative ones `low`.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    @property
    def database(self) -> str:
        """The alias of the database."""
        return str(self.options.get("DATABASE", DEFAULT_DB_ALIAS))

    def check(self, **_: Any) -> Iterable[CheckMessage]:
        """Report names of queues that the bus does not permit."""
        if not self.queues:
            hint = "List the names of the queues; a worker takes tasks from these."
            yield Error(f"QUEUES of the task backend {self.alias!r} is empty", hint=hint)
        for name in sorted(map(self.queue, self.queues)):
            if not re.fullmatch("[a-z0-9_]+", name):
                hint = "Use a-z, 0-9 and _ only in QUEUES and PREFIX."
                yield Error(f"the bus does not permit the queue name {name!r}", hint=hint)

    def queue(self, name: str) -> str:
        """Return the name on the bus of a queue of Django."""
        return f"{self.options.get('PREFIX', 'django')}_{name}"

    def validate_task(self, task: Any) -> None:
        """Refuse tasks that a worker cannot run. Raises TypeError for those of another package."""
        if not isinstance(task, Task):
            raise TypeError(
                f"the task is a {type(task)}, and workers run only {Task}:"
                f" import the decorator from {Task.__module__.removesuffix('.base')}"
            )
        super().validate_task(task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Post a task in the current transaction. Raises QueueNotFound, WrongPayload, TypeError."""
        self.validate_task(task)
        data = {
            "task": task.module_path,
            "args": list(args),
            "kwargs": dict(kwargs),
            "priority": task.priority,
            "queue_name": task.queue_name,
            "run_after": task.run_after and task.run_after.isoformat(),
        }
        priority = "high" if task.priority > 0 else "low" if task.priority < 0 else "normal"
        iid = bus(self.database).post(
            self.queue(task.queue_name),
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
        for queue in sorted({self.queue(name) for name in self.queues} - existing):
            own.create_queue(queue, payload="jsonb")

    def worker(self, concurrency: int = 1) -> Worker:
        """Return a worker for the tasks, which run in threads of this process."""
        connections[self.database].ensure_connection()
        info = connections[self.database].connection.info
        worker = Worker(make_conninfo("", **info.get_parameters(), password=info.password))
        for name in sorted(self.queues):
            worker.handler(self.queue(name), mode="lease", concurrency=concurrency)(self._run)
        return worker

    def _run(self, message: LeasedMessage) -> None:
        data = message.data
        task = import_string(data["task"])
        if not isinstance(task, Task):
            raise Park(f"{data['task']} is not a task")
        task = task.using(
            priority=data["priority"],
            queue_name=data["queue_name"],
            run_after=data["run_after"] and datetime.fromisoformat(data["run_after"]),
            backend=self.alias,
        )
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
        # Each thread has its own connections, which the server may have closed in the meantime.
        close_old_connections()
        # An error in a receiver must not cause a successful task to be run again.
        task_started.send_robust(type(self), task_result=result)
        try:
            value = task.call(*context, *data["args"], **data["kwargs"])
            self._end(result, TaskResultStatus.SUCCESSFUL, value=value)
        except Exception as failure:
            close_old_connections()
            consumers = bus(self.database).consumers(self.queue(task.queue_name))
            is_last = any(message.attempt >= each.max_attempts for each in consumers)
            if is_last or isinstance(failure, Park):
                error = TaskError(
                    exception_class_path=f"{type(failure).__module__}.{type(failure).__qualname__}",
                    traceback="".join(traceback.format_exception(failure)),
                )
                self._end(result, TaskResultStatus.FAILED, error)
            raise
        finally:
            close_old_connections()

    def _end(self, result: Any, status: Any, *errors: Any, value: Any = None) -> None:
        ended = replace(result, status=status, errors=[*errors], finished_at=timezone.now())
        object.__setattr__(ended, "_return_value", value)
        task_finished.send_robust(type(self), task_result=ended)

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
