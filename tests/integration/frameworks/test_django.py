"""The bus and Django Tasks on Django's own connection."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from postroad.bus import Bus, QueueNotFound
from postroad.testing import wait_until
from tests.integration.frameworks import django_settings

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(database: str) -> Iterator[str]:
    """The Django project on a fresh database, with the queues of its tasks."""
    django_settings.configure(database)
    from django.core.management import call_command
    from django.db import connection

    call_command("postroad_tasks", only_create=True)
    with connection.cursor() as cursor:
        cursor.execute("create table noted (text text)")
    yield database
    connection.close()


def noted(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        return sorted(text for [text] in connection.execute("select text from noted"))


def test_posts_and_consumption_belong_to_the_atomic_block(project: str) -> None:
    from django.db import connection, transaction

    from postroad.integrations.django import bus

    with Bus(project) as own:
        own.create_queue("orders")
    with transaction.atomic():
        bus().post("orders", {"number": "1"})
        transaction.set_rollback(True)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("insert into noted values ('with its message')")
        bus().post("orders", {"number": "2"})
        with transaction.atomic():
            bus().post("orders", {"number": "3"})
            transaction.set_rollback(True)
    with transaction.atomic():
        [message] = bus().consume("orders")
        assert message.data == {"number": "2"}
        transaction.set_rollback(True)
    with transaction.atomic():
        assert [message.data for message in bus().consume("orders")] == [{"number": "2"}]
    assert bus().consume("orders") == []


def test_a_task_is_enqueued_by_the_commit_only(project: str) -> None:
    from django.db import transaction

    from tests.integration.frameworks.shop_tasks import record

    with transaction.atomic():
        record.enqueue("never")
        transaction.set_rollback(True)
    with transaction.atomic():
        urgent = record.using(priority=10).enqueue("urgent")
        record.using(priority=-10).enqueue("not urgent")
        later = record.using(run_after=datetime.now(UTC) + timedelta(hours=1)).enqueue("later")
    assert urgent.status == "READY"
    with Bus(project) as own:
        found = own.consume("django_default", amount=10)
        assert [message.iid for message in found][:1] == [urgent.id]
        assert [message.data["args"] for message in found] == [["urgent"], ["not urgent"]]
        [delayed] = [each for each in own.status() if each.queue == "django_default"]
        assert delayed.delayed == 1
    assert later.id != urgent.id


def test_a_task_without_a_queue_is_refused(project: str) -> None:
    from tests.integration.frameworks.shop_tasks import record

    with Bus(project) as own:
        own.drop_queue("django_default")
    with pytest.raises(QueueNotFound):
        record.enqueue("never")


@pytest.mark.slow
def test_the_command_runs_tasks_until_it_is_stopped(project: str) -> None:
    from tests.integration.frameworks.shop_tasks import fail_once, record, record_by_coroutine

    with Bus(project) as own:
        own.alter_consumer("django_default", "default", backoff=timedelta(milliseconds=10))
    record.enqueue("plain")
    record_by_coroutine.enqueue("awaited", sign="!")
    fail_once.enqueue("again")
    expected = ["again 1", "again 2", "awaited!", "plain"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = [sys.executable, "-m", "django", "postroad_tasks", "--concurrency=2"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        wait_until(lambda: noted(project) == expected, what="the tasks", timeout_seconds=60)
        process.terminate()
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
    with Bus(project) as own:
        assert all(each.ready + each.delayed + each.dmq == 0 for each in own.status())
