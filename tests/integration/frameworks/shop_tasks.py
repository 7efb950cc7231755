"""Tasks of the Django project of the tests; they leave a row each time they run."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django_tasks import task


def note(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into noted values (%s)", [text])


@task
def record(text: str) -> None:
    note(text)


@task(queue_name="mail")
async def record_by_coroutine(text: str, *, sign: str) -> None:
    from asgiref.sync import sync_to_async

    await sync_to_async(note)(text + sign)


@task(takes_context=True)
def fail_once(context: Any, text: str) -> None:
    note(f"{text} {context.attempt}")
    if context.attempt == 1:
        raise ValueError("as asked")


@task
def double(number: int) -> int:
    return number + number
