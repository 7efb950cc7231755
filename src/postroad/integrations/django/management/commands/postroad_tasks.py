"""The command `postroad_tasks`: runs the tasks of a Postroad backend."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

try:
    from django.tasks import task_backends
except ImportError:  # before Django 6
    from django_tasks import task_backends


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Creates missing queues and runs tasks until SIGTERM or SIGINT."""

    help = "Run the tasks of a Postroad task backend until SIGTERM or SIGINT."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--backend", default="default", help="alias in the setting TASKS")
        parser.add_argument("--concurrency", type=int, default=1, help="threads for each queue")
        parser.add_argument("--only-create", action="store_true", help="create the queues and exit")

    def handle(self, *_: Any, backend: str, concurrency: int, only_create: bool, **__: Any) -> None:
        """Run the command."""
        # If the app django-tasks is not installed, Django does not run its checks.
        if problems := list(task_backends[backend].check()):
            raise CommandError("\n".join(map(str, problems)))
        task_backends[backend].create_queues()
        if not only_create:
            task_backends[backend].worker(concurrency).serve()
